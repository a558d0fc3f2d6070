/** The context as text: documents or turns as cards that can be closed, their spans coloured by share. */
import { type AnswerView, paintPiece } from "../../draw/answerview";
import { bdi, h } from "../../draw/dom";
import { type Answer, type Source, sum } from "../../model/answer";
import * as format from "../../model/format";
import { Panel } from "../panel";
import { type Actions, Pieces } from "./pieces";

/** Up to this many sources, all are open at first; of more, those with the largest items. */
const MOST_OPEN = 8;

export class AnswerContext extends Panel<AnswerView> {
  readonly element: HTMLElement;
  private readonly pieces: Pieces;
  private readonly cards: { source: Source; share: HTMLElement; details: HTMLDetailsElement }[];

  constructor(answer: Answer, actions: Actions) {
    super();
    this.pieces = new Pieces("item", actions);
    const open = openedAt(answer);
    this.cards = answer.sources.map((source) => this.card(source, open.has(source)));
    const hint = h(
      "p",
      { class: "hint" },
      "Orange speaks for the answer, violet against it; the stronger the colour, the more.",
    );
    this.element = h(
      "section",
      { class: "context", "aria-label": "Context" },
      ...this.cards.map(({ details }) => details),
      hint,
    );
    this.pieces.listen(this.element, this.lifetime);
  }

  update(view: AnswerView): void {
    const { answer, shares, colours, focus, chosen } = view;
    const showsWord = focus?.kind === "word" && view.view.rows !== null;
    const name = showsWord ? "share of the word" : "share";
    for (const [item, element] of this.pieces.elements) {
      paintPiece(element, shares[item]!, colours);
      const inFocus = focus?.kind === "item" && focus.index === item;
      element.classList.toggle("chosen", inFocus);
      element.setAttribute("aria-pressed", String(chosen?.kind === "item" && chosen.index === item));
      element.title = `${answer.items[item]!.ranked ? answer.unit : answer.items[item]!.text}: ${name} ${format.signed(shares[item]!)}`;
    }
    for (const { source, share } of this.cards)
      share.textContent = format.addend(sum(itemsOf(source).map((item) => shares[item]!)));
  }

  /** Bring an item into view, opening its document. */
  reveal(item: number): void {
    const element = this.pieces.elements.get(item);
    if (!element) return;
    element.closest("details")!.open = true;
    element.scrollIntoView({ block: "nearest" });
  }

  private card(source: Source, open: boolean): (typeof this.cards)[number] {
    const share = h("span", { class: "value" });
    const text = source.pieces.map(({ text: part, item }) => (item < 0 ? part : this.pieces.make(item, part)));
    const details = h(
      "details",
      { class: `card source ${source.kind}`, open },
      h("summary", {}, h("h2", {}, bdi(source.name)), share),
      h("p", { class: "source-text", dir: "auto" }, ...text),
    );
    return { source, share, details };
  }
}

function itemsOf({ pieces }: Source): number[] {
  return pieces.map(({ item }) => item).filter((item) => item >= 0);
}

function openedAt({ sources, views }: Answer): Set<Source> {
  if (sources.length <= MOST_OPEN) return new Set(sources);
  const most = (source: Source): number =>
    Math.max(0, ...itemsOf(source).map((item) => Math.abs(views[0]!.total[item]!)));
  return new Set(sources.toSorted((one, other) => most(other) - most(one)).slice(0, MOST_OPEN));
}
