/** Two analyses side by side, cell by cell: the second one's values at the cells of the first, and how the two are called. */
import type { View } from "../draw/view";
import type { Pane } from "../model/pane";
import { cut } from "../model/tokens";
import type { Context } from "./panel";

const LONGEST = 48;

/** `[row, column]` of the first view: the value that the second map has there; NaN where it has no such tokens. */
export function alignedValues(context: Context, view: View): Float32Array {
  const shared = context.store.state;
  const other = context.panes[1]!;
  const state = other.state(shared);
  const lens = other.lens(shared);
  const [queries, keys, matrix] = [lens.queries(state), lens.keys(state), lens.matrix(state)];
  const across = (axis: "queries" | "keys", members: number[]): number => {
    const token = other.fromFirst(shared, axis, members[0] ?? -1);
    return (axis === "queries" ? queries : keys).of[token] ?? -1;
  };
  const rows = view.queries.members.map((members) => across("queries", members));
  const columns = view.keys.members.map((members) => across("keys", members));
  return view.matrix.values.map((_, at) => {
    const [row, column] = [rows[Math.floor(at / view.matrix.columns)]!, columns[at % view.matrix.columns]!];
    return row < 0 || column < 0 ? Number.NaN : (matrix.values[row * matrix.columns + column] ?? Number.NaN);
  });
}

/** What tells the analyses apart: their models, methods or texts, or else their places. */
export function namesOf(panes: readonly Pane[]): string[] {
  const parts = panes.map(({ analysis: { model, method, text } }) => [
    model,
    method,
    `\u201c${cut(text, LONGEST)}\u201d`,
  ]);
  const told = parts[0]!.map((part, at) => parts.some((other) => other[at] !== part));
  return parts.map((own, index) => own.filter((_, at) => told[at]).join(" \u00b7 ") || `analysis ${index + 1}`);
}
