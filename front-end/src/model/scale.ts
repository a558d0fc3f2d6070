/** Where values are on a colour bar, from 0 to 1: by value, its root, its logarithm or its rank among the others. */
import type { Matrix } from "./matrix";
import type { State } from "./state";

export type Scale =
  | { kind: "linear" | "root" }
  /** From `low` (and below) to the limit. */
  | { kind: "log"; low: number }
  /** What is at every 256th of all sizes, smallest first. */
  | { kind: "quantile"; knots: Float32Array };

const MOST_SAMPLED = 8192;
const KNOTS = 256;
/** How many times the typical size the largest must be for a logarithm to say more than the root. */
const WIDE = 400;
const DECADES = 1e-5;

/** The sizes of a map's cells, or of some that stand for all, in order. */
export function sizesOf({ values }: Matrix, most = MOST_SAMPLED): Float32Array {
  const step = Math.max(1, Math.floor(values.length / most));
  const sizes: number[] = [];
  for (let at = 0; at < values.length; at += step) {
    const size = Math.abs(values[at]!);
    if (size > 0) sizes.push(size);
  }
  return Float32Array.from(sizes).sort();
}

/** The requested scale; for "auto", the one that suits the sizes. */
export function scaleFor(wanted: State["scale"], sizes: Float32Array, limit: number): Scale {
  const at = (part: number): number => sizes[Math.round(part * (sizes.length - 1))] ?? 0;
  const kind = wanted === "auto" ? (limit > WIDE * at(0.5) && sizes.length > 0 ? "log" : "root") : wanted;
  if (kind === "linear" || kind === "root") return { kind };
  if (sizes.length === 0 || limit <= 0) return { kind: "root" };
  if (kind === "log") return { kind, low: Math.min(limit / 10, Math.max(limit * DECADES, at(0.02))) };
  return { kind, knots: Float32Array.from({ length: KNOTS }, (_, knot) => at(knot / (KNOTS - 1))) };
}

/** Where a size is on the bar, from 0 to 1. */
export function fractionOf(size: number, limit: number, scale: Scale): number {
  switch (scale.kind) {
    case "linear":
      return Math.min(1, size / limit);
    case "root":
      return Math.min(1, Math.sqrt(size / limit));
    case "log":
      return size <= scale.low ? 0 : Math.min(1, Math.log(size / scale.low) / Math.log(limit / scale.low));
    default:
      return rank(size, scale.knots);
  }
}

function rank(size: number, knots: Float32Array): number {
  let [low, high] = [0, knots.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (knots[middle]! < size) low = middle + 1;
    else high = middle;
  }
  return Math.min(1, low / (knots.length - 1));
}
