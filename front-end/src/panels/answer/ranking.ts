/** The items with the largest shares, the others as one, and what was left out: all of it adds up. */
import type { AnswerView } from "../../draw/answerview";
import { bdi, h } from "../../draw/dom";
import { largest, signColour } from "../../draw/flowview";
import { type Answer, ranking, sum, wordTexts } from "../../model/answer";
import * as format from "../../model/format";
import { cut } from "../../model/tokens";
import { barLine } from "../bar";
import { Panel } from "../panel";
import type { Actions } from "./pieces";

/** Items in the list, unless all are requested. */
export const MOST_RANKED = 12;
const LONGEST = 90;

export class Ranking extends Panel<AnswerView> {
  readonly element: HTMLElement;
  private readonly title = h("h2");
  private readonly list = h("ol", { class: "bars diverging" });
  private readonly left = h("ol", { class: "bars diverging left" });
  private readonly result = h("span", { class: "value" });
  private readonly all: HTMLButtonElement;
  private readonly words: string[];
  private most = MOST_RANKED;
  private view: AnswerView | null = null;

  constructor(
    answer: Answer,
    private readonly actions: Actions,
  ) {
    super();
    this.words = wordTexts(answer);
    const count = answer.items.filter(({ ranked }) => ranked).length;
    this.all = h("button", { type: "button", class: "quiet", click: () => this.toggle() }, `All ${count}`);
    this.all.hidden = count <= MOST_RANKED + 1;
    this.element = h(
      "section",
      { class: "card ranking" },
      h("header", {}, this.title, this.all),
      this.list,
      h("h3", {}, "Left out"),
      this.left,
      h("p", { class: "result" }, h("span", {}, "sum of all"), this.result),
    );
  }

  update(view: AnswerView): void {
    this.view = view;
    const { answer, shares, focus } = view;
    const word = focus?.kind === "word" && view.view.rows ? this.words[focus.index]! : null;
    this.title.replaceChildren(
      ...(word === null ? ["Where it came from"] : ["Where ", bdi(word, { class: "token" }), " came from"]),
    );
    const lines = ranking(answer.items, shares, this.most);
    const left = answer.items.flatMap(({ ranked }, item) => (ranked ? [] : [{ item, share: shares[item]!, count: 1 }]));
    const most = largest([...lines, ...left].map(({ share }) => share)) || 1;
    const made = ({ item, share, count }: (typeof lines)[number]): HTMLElement =>
      this.line(view, item, share, count, most);
    this.list.replaceChildren(...lines.map(made));
    this.left.replaceChildren(...left.map(made));
    this.result.textContent = format.addend(sum(shares));
  }

  private line(
    { answer, focus, dark }: AnswerView,
    item: number,
    share: number,
    count: number,
    most: number,
  ): HTMLElement {
    const { text, source, tokens, ranked } = answer.items[item] ?? { text: "", source: "", tokens: 0, ranked: true };
    const name = item < 0 ? `${count} others` : cut(text.replace(/\s+/gu, " "), LONGEST);
    const where = ranked ? source : tokens === 1 ? "1 token" : tokens > 0 ? `${tokens} tokens` : "";
    const label = [bdi(name), where === name ? null : h("small", {}, bdi(where))];
    const chosen = focus?.kind === "item" && focus.index === item;
    const choose = (): void => this.actions.choose({ kind: "item", index: item });
    return barLine({
      name:
        item < 0
          ? h("span", { class: "key special" }, ...label)
          : h("button", { type: "button", class: "key" }, ...label),
      size: share / most,
      diverging: true,
      colour: signColour(share, dark),
      value: format.addend(share),
      chosen,
      title: item < 0 ? "" : text,
      ...(item < 0 ? {} : { choose }),
    });
  }

  private toggle(): void {
    this.most = this.most === MOST_RANKED ? Number.POSITIVE_INFINITY : MOST_RANKED;
    this.all.setAttribute("aria-pressed", String(this.most !== MOST_RANKED));
    if (this.view) this.update(this.view);
  }
}
