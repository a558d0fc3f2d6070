/** Everything the panels of a similarity need to draw themselves, computed once per change. */
import { type Account, type Pair, SIDES, type SideName, strongestPairs } from "../model/similarity";
import type { SimilarityState } from "../model/similaritystate";
import type { Palette } from "./colour";
import { largest, signs } from "./flowview";
import type { Ink } from "./ink";

/** A unit of one text, or of each: what is chosen, or under the pointer. */
export type Focus = Partial<Record<SideName, number>>;

export interface SimilarityView {
  state: SimilarityState;
  account: Account;
  /** The pairs that are drawn, largest first, and what share of all they are. */
  pairs: Pair[];
  carried: number;
  /** Colours of what single units do. */
  colours: Palette;
  /** What is chosen; null where nothing is. */
  selected: Focus | null;
  ink: Ink;
  dark: boolean;
}

export function similarityView(
  account: Account,
  state: SimilarityState,
  look: { ink: Ink; dark: boolean },
): SimilarityView {
  const { lines, table } = account;
  const { pairs, carried } = table ? strongestPairs(table, state.share / 100) : { pairs: [], carried: 0 };
  const limit = largest(SIDES.flatMap((side) => [...lines[side].shares]));
  const selected: Focus = {};
  for (const side of SIDES) {
    const unit = lines[side].units.of[state[side]] ?? -1;
    if (unit >= 0) selected[side] = unit;
  }
  const nothing = Object.keys(selected).length === 0;
  return {
    state,
    account,
    pairs,
    carried,
    colours: signs(limit, look.dark),
    selected: nothing ? null : selected,
    ...look,
  };
}

/** Whether a pair belongs to what is in focus: to its one unit, or to both. */
export function belongs(focus: Focus): (pair: Pair) => boolean {
  return (pair) => SIDES.every((side) => focus[side] === undefined || focus[side] === pair[side]);
}
