/** An explained answer: the items of its prompt, the words of the answer, and the shares between them. */
import { decodeBlock, type Rows } from "./decode";
import type { Block, Facts } from "./payload";
import { type Choices, parseFields, type State } from "./state";

/** The payload as Python writes it (`normscope/explorer/answer_payload.py`). */
export interface AnswerPayload extends Omit<Answer, "views"> {
  views: { name: ViewName; total: number[]; rows: Block | null }[];
}

export interface Answer {
  facts: Facts;
  unit: string;
  value: number;
  error: number;
  /** The part that is explained; "" for all of the answer. */
  explained: string;
  items: Item[];
  sources: Source[];
  answer: { text: string; word: number; probability?: number; explained?: boolean }[];
  words: number;
  views: Shares[];
  /** Why single words have no shares; "" if they have. */
  missing: string;
}

/** A span of the context, or something that was left out. */
export interface Item {
  text: string;
  source: string;
  tokens: number;
  ranked: boolean;
}

export interface Source {
  kind: string;
  name: string;
  /** Item -1: text in no span. */
  pieces: { text: string; item: number }[];
}

export type ViewName = "direct" | "reasoning";

/** The share of every item in the answer, and in each of its words. */
export interface Shares {
  name: ViewName;
  total: number[];
  rows: WordShares | null;
}

/** A word of the answer or an item, by its number. */
export interface Focus {
  kind: "word" | "item";
  index: number;
}

export async function decodeAnswer(payload: AnswerPayload): Promise<Answer> {
  const views = await Promise.all(
    payload.views.map(async ({ name, total, rows }): Promise<Shares> => {
      return { name, total, rows: rows && new WordShares(await decodeBlock(rows)) };
    }),
  );
  return { ...payload, views };
}

/** The shares of all items in each word. There may be millions, so that they are unpacked word by word on request. */
export class WordShares {
  readonly words: number;
  private known: Float64Array | null = null;

  constructor(private readonly packed: Rows) {
    this.words = packed.shape[0]!;
  }

  /** The largest relative error of a share; 0 where they are as analysed. */
  get error(): number {
    return this.packed.error;
  }

  /** The share of every item in a word. */
  of(word: number): Float32Array {
    return this.packed.read(word, 1);
  }

  /** The share of an item in every word. */
  in(item: number): number[] {
    return Array.from({ length: this.words }, (_, word) => this.packed.at(word, item));
  }

  /** The sizes of all shares of each word, added up. */
  get sizes(): Float64Array {
    this.known ??= Float64Array.from({ length: this.words }, (_, word) => size(this.of(word)));
    return this.known;
  }
}

/** The share of every item in a word, or in all that is explained. */
export function sharesOf({ total, rows }: Shares, focus: Focus | null): ArrayLike<number> {
  return focus?.kind === "word" && rows ? rows.of(focus.index) : total;
}

/** What an item put into every word; null if that is not known. */
export function fedBy({ rows }: Shares, item: number): number[] | null {
  return rows?.in(item) ?? null;
}

/** With less than this part of all that adds up, nothing gets the full colour: small shares stay pale together. */
const FULL = 0.1;

function size(shares: ArrayLike<number>): number {
  let total = 0;
  for (let item = 0; item < shares.length; item++) total += Math.abs(shares[item]!);
  return total;
}

/** The share that gets the full colour: the largest of the spans, but at least a tenth of all sizes. */
export function fullShare({ items }: Answer, shares: ArrayLike<number>): number {
  let full = FULL * size(shares);
  for (let item = 0; item < shares.length; item++)
    if (items[item]!.ranked) full = Math.max(full, Math.abs(shares[item]!));
  return full;
}

/** The same for what an item put into words, of which each has its own sizes. */
export function fullFed({ rows }: Shares, fed: readonly number[]): number {
  let full = 0;
  for (const [word, share] of fed.entries()) full = Math.max(full, Math.abs(share), FULL * (rows?.sizes[word] ?? 0));
  return full;
}

export function sum(values: ArrayLike<number>): number {
  let total = 0;
  for (let at = 0; at < values.length; at++) total += values[at]!;
  return total;
}

/** One line of a ranking: an item, or all of the smaller ones (-1). */
export interface Ranked {
  item: number;
  share: number;
  /** How many items it stands for. */
  count: number;
}

/** The largest spans, from the highest share to the lowest, with the rest as one line: they add up with what was left out. */
export function ranking(items: readonly Item[], shares: ArrayLike<number>, most: number): Ranked[] {
  const entries = items
    .map(({ ranked }, item) => ({ item, share: shares[item]!, count: 1, ranked }))
    .filter(({ ranked }) => ranked)
    .toSorted((one, other) => Math.abs(other.share) - Math.abs(one.share));
  const shown = entries.slice(0, entries.length > most + 1 ? most : entries.length);
  const rest = entries.slice(shown.length);
  const lines = shown.toSorted((one, other) => other.share - one.share).map(({ ranked: _, ...line }) => line);
  return rest.length > 0
    ? [...lines, { item: -1, share: sum(rest.map(({ share }) => share)), count: rest.length }]
    : lines;
}

/** The words of the answer by number. */
export function wordTexts({ answer }: Answer): string[] {
  return answer.filter(({ word }) => word >= 0).map(({ text }) => text);
}

export interface AnswerState {
  view: ViewName;
  /** The chosen word of the answer, or the chosen item (-1: none). */
  word: number;
  item: number;
  theme: State["theme"];
}

const CHOICES: Choices<AnswerState> = { view: ["direct", "reasoning"], theme: ["auto", "light", "dark"] };

export function initialAnswerState(answer: Answer): AnswerState {
  return { view: answer.views[0]!.name, word: -1, item: -1, theme: "auto" };
}

/** The state that a fragment has, with everything that the answer does not have replaced by what it has. */
export function parseAnswerState(fragment: string, answer: Answer): AnswerState {
  const initial = initialAnswerState(answer);
  const state = parseFields(fragment, initial, CHOICES);
  const within = (index: number, count: number): number => (index < count ? Math.max(-1, index) : -1);
  const word = within(state.word, answer.words);
  return {
    ...state,
    view: answer.views.some(({ name }) => name === state.view) ? state.view : initial.view,
    word,
    item: word >= 0 ? -1 : within(state.item, answer.items.length),
  };
}

export function chosenOf({ word, item }: AnswerState): Focus | null {
  if (word >= 0) return { kind: "word", index: word };
  return item >= 0 ? { kind: "item", index: item } : null;
}
