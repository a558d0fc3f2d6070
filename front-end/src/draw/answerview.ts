/** What the panels of an answer show: its shares in a word or in all, and the colours for them. */
import { type Answer, type Focus, fedBy, fullFed, fullShare, type Shares, sharesOf } from "../model/answer";
import type { Look } from "../section";
import { inkOn, type Palette } from "./colour";
import { signs, tint } from "./flowview";
import type { Ink } from "./ink";

export interface AnswerView {
  answer: Answer;
  view: Shares;
  /** Hovered, focused or chosen. */
  focus: Focus | null;
  chosen: Focus | null;
  /** The share of every item in the word in focus, or in all that is explained. */
  shares: ArrayLike<number>;
  /** What the item in focus put into every word; null if none is, or if that is not known. */
  fed: number[] | null;
  colours: Palette;
  /** The colours of words, by what the item in focus put into them. */
  fedColours: Palette;
  ink: Ink;
  dark: boolean;
}

export function answerView(
  answer: Answer,
  view: Shares,
  focus: Focus | null,
  chosen: Focus | null,
  look: Look,
): AnswerView {
  const shares = sharesOf(view, focus);
  const fed = focus?.kind === "item" ? fedBy(view, focus.index) : null;
  return {
    answer,
    view,
    focus,
    chosen,
    shares,
    fed,
    colours: signs(fullShare(answer, shares), look.dark, "linear"),
    fedColours: signs(fed ? fullFed(view, fed) : 0, look.dark, "linear"),
    ...look,
  };
}

/** Colour an element by a value, or not at all. */
export function paintPiece(element: HTMLElement, value: number | null, colours: Palette): void {
  const background = value === null ? "" : tint(value, colours);
  element.style.background = background;
  element.style.color = background && inkOn(background);
}
