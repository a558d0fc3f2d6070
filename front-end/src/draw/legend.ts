/** What the colours mean: a colour bar with its axis, and an arrow where values go beyond it. */
import { format } from "d3-format";
import { scaleLinear, scaleLog, scalePow } from "d3-scale";
import { number } from "../model/format";
import { fractionOf, type Scale } from "../model/scale";
import type { Palette } from "./colour";
import type { Mark } from "./marks";

/** Of the colour bar, in pixels, and how far an arrow goes beyond it. */
const WIDTH = 220;
const HEIGHT = 10;
const ARROW = 7;
/** How many colours of the palette the bar shows: each is a whole number of pixels wide, so that there are no seams. */
const STEPS = 110;
const ROOM_OF_A_TICK = 24;
const WIDTH_OF_A_DIGIT = 5.8;

/** The room that a legend takes, with the tick labels that extend beyond the ends of the bar. */
export const LEGEND = { width: WIDTH, side: 16, height: HEIGHT + 20 };

/** How values are laid out, where that is not by value or its root. */
const SCALES: Partial<Record<Scale["kind"], string>> = { log: "logarithmic", quantile: "by rank" };

/** Whole percents, or, below 10 %, with the digits that ticks up to a limit need to differ. */
export function tickFormat(norm: string, limit: number): (value: number) => string {
  if (norm === "none") return number;
  if (limit >= 0.1 || limit <= 0) return format(".0%");
  return format(`.${Math.max(1, 1 - Math.floor(Math.log10(100 * limit)))}~%`);
}

/** Whether the last colour also stands for values that are larger still. */
export function goesBeyond({ most, limit }: Palette): boolean {
  return most > limit * (1 + 1e-6);
}

export interface Tick {
  x: number;
  text: string;
}

/** Ticks along a colour bar of some width, as many as have room. */
export function ticksOf(palette: Palette, width: number, norm: string): Tick[] {
  const limit = palette.limit || 1;
  const show = tickFormat(norm, palette.limit);
  const x = (value: number): number => {
    const fraction = Math.sign(value) * fractionOf(Math.abs(value), limit, palette.scale);
    return palette.diverging ? ((1 + fraction) * width) / 2 : fraction * width;
  };
  const tickAt = (value: number): Tick => {
    const below = palette.scale.kind === "log" && value === palette.scale.low ? "\u2264\u2009" : "";
    return { x: x(value), text: below + show(value) };
  };
  const ticks: Tick[] = [];
  const haveRoom = (one: Tick, other: Tick): boolean => Math.abs(other.x - one.x) >= roomOf(other.text, one.text);
  for (const size of sizesFor(palette.scale, limit)) {
    const [over, under] = [tickAt(size), tickAt(-size)];
    // Both sides of 0 have the same ticks.
    const sides = palette.diverging && haveRoom(over, under) ? [over, under] : [over];
    if (sides.every((tick) => ticks.every((other) => haveRoom(tick, other)))) ticks.push(...sides);
  }
  return ticks;
}

function roomOf(one: string, other: string): number {
  return Math.max(ROOM_OF_A_TICK, (WIDTH_OF_A_DIGIT * (one.length + other.length)) / 2 + 6);
}

/** The sizes that ticks would be at, those that must be there first. */
function sizesFor(scale: Scale, limit: number): number[] {
  switch (scale.kind) {
    case "linear":
      return scaleLinear([0, limit], [0, 1]).ticks(4);
    case "root":
      return scalePow([0, limit], [0, 1]).exponent(0.5).ticks(4);
    case "log": {
      const decades = scaleLog([scale.low, limit], [0, 1]).ticks(4).toReversed();
      return [scale.low, limit, ...decades];
    }
    default:
      return [0, 1, 0.5, 0.25, 0.75].map((part) => scale.knots[Math.round(part * (scale.knots.length - 1))]!);
  }
}

/** A colour bar with its axis below, as marks; the bar begins at (0, 0). */
export function legendMarks(palette: Palette, norm: string, colour: string): Mark[] {
  return [...barMarks(palette), ...arrowMarks(palette), ...axisMarks(palette, norm, colour)];
}

function barMarks({ css }: Palette): Mark[] {
  const step = WIDTH / STEPS;
  return Array.from({ length: STEPS }, (_, index) => {
    const fill = css[Math.floor(((index + 0.5) * css.length) / STEPS)]!;
    return { kind: "rect", x: index * step, y: 0, width: step, height: HEIGHT, fill };
  });
}

/** Where values go beyond the last colour, there is an arrow. */
function arrowMarks(palette: Palette): Mark[] {
  if (!goesBeyond(palette)) return [];
  const arrow = (end: number, tip: number, fill: string): Mark => {
    return { kind: "path", d: `M${end},0L${tip},${HEIGHT / 2}L${end},${HEIGHT}Z`, fill };
  };
  const right = arrow(WIDTH, WIDTH + ARROW, palette.css[255]!);
  return palette.diverging ? [right, arrow(0, -ARROW, palette.css[0]!)] : [right];
}

function axisMarks(palette: Palette, norm: string, colour: string): Mark[] {
  return ticksOf(palette, WIDTH, norm).flatMap(({ x, text }): Mark[] => [
    { kind: "line", from: [x, HEIGHT], to: [x, HEIGHT + 4], stroke: colour },
    { kind: "text", x, y: HEIGHT + 14, text, size: 10, fill: colour, anchor: "middle" },
  ]);
}

/** What the colours mean, in words, with how values are laid out on them. */
export function legendTitle({ scale }: Palette, quantity: string): string {
  const name = SCALES[scale.kind];
  return name ? `${quantity}, ${name}` : quantity;
}

/** The legend for a screen reader. */
export function legendLabel(palette: Palette, norm: string, quantity: string): string {
  const show = tickFormat(norm, palette.limit);
  const ends = [palette.diverging ? show(-palette.limit) : "0", show(palette.limit)];
  return `Colours: ${quantity}, from ${ends.join(" to ")}${goesBeyond(palette) ? " and beyond" : ""}`;
}
