/** Everything the panels of one pane need to know to draw themselves, worked out once per change. */

import type { Lens } from "../model/lens";
import type { Matrix } from "../model/matrix";
import { quantityOf } from "../model/scopes";
import type { State } from "../model/state";
import { shortLabel, type Units } from "../model/tokens";
import type { Palette } from "./colour";
import { bdi } from "./dom";
import type { Cell } from "./geometry";
import type { Ink } from "./paint";

export interface View {
  /** The state as this pane shows it. */
  state: State;
  lens: Lens;
  matrix: Matrix;
  queries: Units;
  keys: Units;
  palette: Palette;
  ink: Ink;
  dark: boolean;
  /** The row and column to speak of: those pointed at, else those chosen. */
  focus: Cell;
  /** The chosen ones, whatever is pointed at. */
  selected: Cell;
}

/** What is shown, in a few words. */
export function titleOf({ state, lens }: View): string {
  const scope = state.base === "" ? state.scope : `${state.scope} \u2212 ${state.base}`;
  const head = state.head > 0 && lens.analysis.hasHeads(state.scope) ? `, head ${state.head}` : "";
  return `${scope}, layer ${state.layer}${head}`;
}

/** How the values came about, where that needs saying: norms are what this page is about. */
export function methodShown({ lens }: View): string {
  return lens.analysis.method === "norms" ? "" : lens.analysis.method;
}

/** What the colours of a view mean. */
export function quantityShown({ state, lens }: View): string {
  const scope = lens.analysis.scope(state.scope);
  return `${scope ? quantityOf(scope, state.norm) : ""}${state.base ? ", difference" : ""}`;
}

/** The value of a view's cell; NaN outside. */
export function valueAt({ matrix }: View, row: number, column: number): number {
  return matrix.values[row * matrix.columns + column] ?? Number.NaN;
}

/** A token inside a heading. */
export function named(token: string | undefined): HTMLElement {
  return bdi(shortLabel(token ?? "", 28), { class: "token" });
}
