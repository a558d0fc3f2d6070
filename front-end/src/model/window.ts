/** Which part of a long result is looked at, as it stands in the address. */

/** The first row and column of a window. */
export interface Place {
  row: number;
  column: number;
}

/** A result that is shown by windows: its size in tokens, that of the blocks around a window, and of a window. */
export interface WindowFacts {
  queries: number;
  keys: number;
  block: number;
  window: number;
}

const NAMES = ["row", "column"] as const;

/** The window that a fragment names; null for the whole in blocks. */
export function parsePlace(fragment: string, facts: WindowFacts): Place | null {
  const query = new URLSearchParams(fragment);
  const [row, column] = NAMES.map((name) => query.get(name) ?? "");
  if (![row, column].every((text) => /^\d{1,7}$/u.test(text!))) return null;
  return fittedPlace({ row: Number(row), column: Number(column) }, facts);
}

/** A place where a window is whole. */
export function fittedPlace({ row, column }: Place, { queries, keys, window }: WindowFacts): Place {
  const within = (start: number, tokens: number): number => Math.max(0, Math.min(Math.round(start), tokens - window));
  return { row: within(row, queries), column: within(column, keys) };
}

/** A fragment that says how things are looked at, and where. */
export function formatPlace(place: Place | null, fragment: string): string {
  return [place ? `row=${place.row}&column=${place.column}` : "", withoutPlace(fragment)].filter(Boolean).join("&");
}

/** The part of a fragment that says how things are looked at. */
export function withoutPlace(fragment: string): string {
  const query = new URLSearchParams(fragment);
  for (const name of NAMES) query.delete(name);
  return query.toString();
}
