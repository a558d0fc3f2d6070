/** The state of a page of similarities. All of it is in the URL fragment, whose values are checked before use. */
import { SIDES, type SideName, type Similarity, unitKinds } from "./similarity";
import { type Choices, clamp, parseFields, type State } from "./state";
import type { UnitKind } from "./tokens";

export interface SimilarityState {
  /** Which of several similarities is shown. */
  pair: number;
  units: UnitKind;
  special: boolean;
  /** How much of the table is drawn as ribbons (percent). */
  share: number;
  /** Indices of the chosen tokens (-1: none); of both, the cell between them. */
  first: number;
  second: number;
  theme: State["theme"];
}

const CHOICES: Choices<SimilarityState> = {
  units: ["token", "word", "sentence"],
  theme: ["auto", "light", "dark"],
};

/** How much of the table is drawn at first (percent): of long texts less, so that it can be read. */
const SHARES: [number, number][] = [
  [200, 50],
  [1000, 40],
  [4000, 30],
  [Number.POSITIVE_INFINITY, 20],
];

export function initialSimilarityState(similarity: Similarity): SimilarityState {
  const [rows, columns] = SIDES.map((side) => similarity.sides[side].tokens.token.length);
  return {
    pair: 0,
    units: unitKinds(similarity).includes("word") ? "word" : "token",
    special: true,
    share: SHARES.find(([most]) => rows! * columns! <= most)![1],
    first: -1,
    second: -1,
    theme: "auto",
  };
}

export function parseSimilarityState(fragment: string, initial: SimilarityState): SimilarityState {
  return parseFields(fragment, initial, CHOICES);
}

/** The state with everything that the similarities do not have replaced by what they have. */
export function fitSimilarityState(state: SimilarityState, similarities: readonly Similarity[]): SimilarityState {
  const pair = clamp(state.pair, 0, similarities.length - 1);
  const similarity = similarities[pair]!;
  const token = (side: SideName): number =>
    state[side] < similarity.sides[side].tokens.token.length ? Math.max(-1, state[side]) : -1;
  return {
    ...state,
    pair,
    units: unitKinds(similarity).includes(state.units) ? state.units : unitKinds(similarity)[0]!,
    share: clamp(state.share, 1, 100),
    first: token("first"),
    second: token("second"),
  };
}
