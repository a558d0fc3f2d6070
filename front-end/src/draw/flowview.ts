/** Everything the panels of an explanation need to draw themselves, computed once per change. */

import type { Explanation, Stack } from "../model/explanation";
import type { Flow, FlowNode } from "../model/flow";
import * as format from "../model/format";
import type { PredictionPayload, TargetPayload, TokenTable } from "../model/payload";
import type { State } from "../model/state";
import { holdsSink } from "../model/tokens";
import { type Palette, palette, shade } from "./colour";
import type { Ink } from "./ink";

export interface FlowView {
  state: State;
  explanation: Explanation;
  stack: Stack;
  /** The value that is explained, and its index among those of the explanation. */
  target: TargetPayload;
  targetIndex: number;
  predictions: readonly PredictionPayload[];
  flow: Flow;
  /** The node that is followed. */
  node: FlowNode | null;
  ink: Ink;
  dark: boolean;
}

/** Colours of both signs, up to a limit. */
export function signs(limit: number, dark: boolean, kind: "root" | "linear" = "root"): Palette {
  return palette("normscope", { limit, most: limit, scale: { kind } }, { diverging: true, dark });
}

/** The colour of what raises the value, and of what lowers it. */
export function signColour(value: number, dark: boolean): string {
  const { css } = signs(1, dark);
  return css[value < 0 ? 46 : 214]!;
}

export function tint(value: number, colours: Palette): string {
  return colours.css[shade(value, colours)]!;
}

/** A depth as a reader knows it. */
export function depthName(depth: number): string {
  return depth === 0 ? "the input" : `layer ${depth}`;
}

/** The values of the tokens that are no attention sinks: colours and bars are scaled to them, so that others can be seen. */
export function withoutSinks(table: TokenTable, values: Float32Array): number[] {
  return [...values].filter((value, token) => !Number.isNaN(value) && !holdsSink(table, [token]));
}

/** Beside a sum over several tokens, what each of them has on average. */
export function eachOf(sum: number, members: readonly number[]): string {
  return members.length > 1 ? ` (${members.length} tokens, ${format.signed(sum / members.length)} each)` : "";
}

export function largest(values: Iterable<number>): number {
  let most = 0;
  for (const value of values) most = Math.max(most, Math.abs(value));
  return most;
}
