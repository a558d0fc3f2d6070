/** Everything the panels of one pane need to draw themselves, computed once per change. */

import type { Lens } from "../model/lens";
import type { Matrix } from "../model/matrix";
import { quantityOf, wordsOf } from "../model/scopes";
import type { State } from "../model/state";
import { shortLabel, type Units } from "../model/tokens";
import type { Greyed, Palette } from "./colour";
import { bdi } from "./dom";
import type { Cell } from "./geometry";
import type { Ink } from "./ink";

export interface View {
  /** The state as this pane shows it. */
  state: State;
  lens: Lens;
  matrix: Matrix;
  queries: Units;
  keys: Units;
  palette: Palette;
  /** For every row the column of its own token (-1: none), and what part of the row that is. */
  own: Int32Array;
  ownShares: Float32Array;
  ink: Ink;
  dark: boolean;
  /** The row and column of the details: the hovered ones, else the chosen ones. */
  focus: Cell;
  /** The chosen ones, whatever is hovered. */
  selected: Cell;
}

const GREY = { light: "#bcb8b3", dark: "#5c5866" };

/** The own tokens of a map, where they are to be grey. */
export function greyedOf(state: State, lens: Lens, dark: boolean): Greyed | null {
  return state.own === "grey" ? { columns: lens.own(state), css: dark ? GREY.dark : GREY.light } : null;
}

/** The shares of own tokens to draw next to the map, where they are left out of it. */
export function ownBarsOf({ state, ownShares }: View): Float32Array | null {
  return state.own === "out" ? ownShares : null;
}

/** What is shown, in a few words. */
export function titleOf({ state, lens }: View): string {
  const words = (scope: string): string => wordsOf(lens.analysis.scopes, scope);
  const less = state.base === "" ? "" : ` \u2212 ${words(state.base)}`;
  const head = state.head > 0 && lens.analysis.hasHeads(state.scope) ? `, head ${state.head}` : "";
  return `Layer ${state.layer}, ${words(state.scope)}${less}${head}`;
}

/** The same scope as the papers and the command line name it. */
export function codeOf({ state }: View): string {
  return state.base === "" ? state.scope : `${state.scope} \u2212 ${state.base}`;
}

/** How the values came about, where that needs saying: norms are what this page is about. */
export function methodShown({ lens }: View): string {
  return lens.analysis.method === "norms" ? "" : lens.analysis.method;
}

/** What the colours of a view mean. */
export function quantityShown({ state, lens }: View): string {
  const scope = lens.analysis.scope(state.scope);
  const rest = state.own === "out" && state.norm !== "none" ? " without own tokens" : "";
  const blocks = lens.analysis.keys.count ? " (blocks: per token)" : "";
  return `${scope ? quantityOf(scope, state.norm) : ""}${rest}${state.base ? ", difference" : ""}${blocks}`;
}

/** The value of a view's cell; NaN outside. */
export function valueAt({ matrix }: View, row: number, column: number): number {
  return matrix.values[row * matrix.columns + column] ?? Number.NaN;
}

/** A token inside a heading. */
export function named(token: string | undefined): HTMLElement {
  return bdi(shortLabel(token ?? "", 28), { class: "token" });
}
