/** Windows of a long result: their start, as it is in the address, and payloads with a window in place of blocks. */
import type { AnalysisPayload, Payload, TokenTable } from "./payload";

/** The first row and column of a window. */
export interface WindowStart {
  row: number;
  column: number;
}

/** The stack of an analysis that is shown; without a separate encoder there is only a decoder. */
export type PartName = "decoder" | "encoder";

/** A stack that is shown by windows: its size in tokens, that of the blocks around a window, and of a window. */
export interface WindowFacts {
  queries: number;
  keys: number;
  /** Where the source begins among the keys, if there is one. */
  source: number | null;
  block: number;
  window: number;
  /** All keys as text, where the whole is in blocks. */
  tokens?: string[];
  /** Of a window: where it is, and how many blocks come before its own keys. */
  place?: WindowStart & { before: number };
}

/** A window of every analysis that is long; null for those that are not. */
export interface WindowPayload {
  analyses: (AnalysisPayload | null)[];
}

const NAMES = ["row", "column"] as const;

/** The window that a fragment names; null for the whole in blocks. */
export function parseStart(fragment: string, facts: WindowFacts): WindowStart | null {
  const query = new URLSearchParams(fragment);
  const [row, column] = NAMES.map((name) => query.get(name) ?? "");
  if (![row, column].every((text) => /^\d{1,7}$/u.test(text!))) return null;
  return fittedStart({ row: Number(row), column: Number(column) }, facts);
}

/** The nearest start of a window that is inside the text. */
export function fittedStart({ row, column }: WindowStart, { queries, keys, window }: WindowFacts): WindowStart {
  const within = (start: number, tokens: number): number => Math.max(0, Math.min(Math.round(start), tokens - window));
  return { row: within(row, queries), column: within(column, keys) };
}

/** A fragment with the state of the view and the start of the window. */
export function formatStart(start: WindowStart | null, fragment: string): string {
  return [start ? `row=${start.row}&column=${start.column}` : "", withoutStart(fragment)].filter(Boolean).join("&");
}

/** A fragment without the start of the window: the state of the view. */
export function withoutStart(fragment: string): string {
  const query = new URLSearchParams(fragment);
  for (const name of NAMES) query.delete(name);
  return query.toString();
}

function stackOf(analysis: AnalysisPayload, part: PartName): AnalysisPayload {
  return part === "encoder" ? (analysis.encoder ?? analysis) : analysis;
}

/** Of every analysis what is known of the windows of a part; null where it is whole. */
export function factsOf({ analyses }: Payload, part: PartName): (WindowFacts | null)[] {
  return analyses.map((analysis) => stackOf(analysis, part).windows ?? null);
}

/** Whether anything is shown by windows. */
export function isLong(payload: Payload): boolean {
  return (["decoder", "encoder"] as const).some((part) => factsOf(payload, part).some((facts) => facts !== null));
}

/** The facts of several stacks as those of one that is as long as the longest; null where none is long. */
export function longest(facts: readonly (WindowFacts | null)[]): WindowFacts | null {
  const [first, ...others] = facts.filter((one) => one !== null);
  if (!first) return null;
  const most = (of: (one: WindowFacts) => number): number => Math.max(of(first), ...others.map(of));
  return { ...first, queries: most(({ queries }) => queries), keys: most(({ keys }) => keys) };
}

/** A payload with windows in place of blocks. */
export function withWindow(whole: Payload, { analyses }: WindowPayload, part: PartName): Payload {
  const put = (analysis: AnalysisPayload, index: number): AnalysisPayload => {
    const window = analyses[index];
    if (!window) return analysis;
    const inside = part === "encoder" && analysis.encoder;
    return inside ? { ...analysis, encoder: { ...inside, ...window } } : { ...analysis, ...window };
  };
  return { ...whole, analyses: whole.analyses.map(put) };
}

/** Where the tokens of a block begin in the text, and how many they are. */
export function blockAt({ count }: TokenTable, index: number): { first: number; tokens: number } {
  const first = (count ?? []).slice(0, index).reduce((sum, tokens) => sum + tokens, 0);
  return { first, tokens: count?.[index] ?? 1 };
}

/** The window in the middle of which a query and a key are. */
export function startAround(query: number, key: number, facts: WindowFacts): WindowStart {
  const half = facts.window / 2;
  return fittedStart({ row: query - half, column: key - half }, facts);
}

/** The next key after one whose text has some letters in it, around the end; -1 where there is none. */
export function nextToken({ tokens }: WindowFacts, text: string, after: number): number {
  const wanted = text.trim().toLowerCase();
  if (!tokens || wanted === "") return -1;
  const has = (token: string): boolean => token.toLowerCase().includes(wanted);
  const next = tokens.findIndex((token, index) => index > after && has(token));
  return next >= 0 ? next : tokens.findIndex(has);
}
