/** Several similarities as a list of cards, in the order in which they were ranked: one is shown in full. */
import { inkOn, type Palette } from "../../draw/colour";
import { bdi, h } from "../../draw/dom";
import { largest, signs, tint } from "../../draw/flowview";
import * as format from "../../model/format";
import { accountOf, type Line, type Similarity } from "../../model/similarity";
import type { SimilarityState } from "../../model/similaritystate";
import type { Store } from "../../model/store";
import { label } from "../../model/tokens";
import { Panel } from "../panel";

/** Units of a passage that a card shows. */
const MOST_UNITS = 60;

export interface Shown {
  state: SimilarityState;
  dark: boolean;
}

export class Passages extends Panel<Shown> {
  readonly element: HTMLElement;
  private readonly list = h("ol", { class: "passages" });
  private cards: HTMLButtonElement[] = [];
  private drawn = "";

  constructor(
    private readonly store: Store<SimilarityState>,
    private readonly similarities: readonly Similarity[],
  ) {
    super();
    const header = h(
      "header",
      {},
      h("h2", {}, `${similarities.length} passages`),
      h("span", { class: "hint" }, similarities[0]!.measure),
    );
    this.element = h("nav", { class: "card passage-list", "aria-label": "Passages" }, header, this.list);
  }

  update({ state, dark }: Shown): void {
    const name = [state.units, dark].join();
    if (name !== this.drawn) this.build(state, dark);
    this.drawn = name;
    this.cards.forEach((card, index) => {
      const chosen = index === state.pair;
      if (chosen && card.getAttribute("aria-current") !== "true") card.scrollIntoView({ block: "nearest" });
      card.setAttribute("aria-current", String(chosen));
    });
  }

  private build(state: SimilarityState, dark: boolean): void {
    const most = largest(this.similarities.map(({ value }) => value)) || 1;
    const lines = this.similarities.map((similarity) => {
      return accountOf({ ...similarity, table: null }, { kind: state.units, special: false }).lines.second;
    });
    // The same colours on all cards, so that they can be compared.
    const colours = signs(largest(lines.flatMap(({ shares }) => [...shares])), dark);
    this.cards = this.similarities.map((similarity, index) => {
      const bar = h("i");
      bar.style.width = `${(100 * Math.abs(similarity.value)) / most}%`;
      return h(
        "button",
        { type: "button", class: "passage", click: () => this.store.set({ pair: index, first: -1, second: -1 }) },
        h("span", { class: "rank" }, String(index + 1)),
        h("span", { class: "value" }, format.number(similarity.value)),
        h("span", { class: "track", "aria-hidden": "true" }, bar),
        snippet(lines[index]!, colours),
      );
    });
    this.list.replaceChildren(...this.cards.map((card) => h("li", {}, card)));
  }
}

/** The words of a passage, tinted by what they do for the similarity. */
function snippet({ units, shares }: Line, colours: Palette): HTMLElement {
  const words = units.texts.slice(0, MOST_UNITS).flatMap((text, unit): Node[] => {
    const word = bdi(label(text).replaceAll("\u2423", ""));
    const background = tint(shares[unit]!, colours);
    word.style.background = background;
    word.style.color = inkOn(background);
    return [word, document.createTextNode(" ")];
  });
  const rest = units.texts.length > MOST_UNITS ? ["\u2026"] : [];
  return h("span", { class: "snippet" }, words, rest);
}
