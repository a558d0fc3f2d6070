/** The partners of the token in focus, or else the strongest pairs of all. */
import { bdi, h } from "../../draw/dom";
import { largest, signColour } from "../../draw/flowview";
import type { Focus, SimilarityView } from "../../draw/similarityview";
import { named } from "../../draw/view";
import * as format from "../../model/format";
import { BIAS, otherSide, partnersOf, SIDES, type SideName, strongestPairs } from "../../model/similarity";
import { shortLabel } from "../../model/tokens";
import { barLine } from "../bar";
import { Panel } from "../panel";
import type { Actions } from "./texts";

const MOST = 14;
const LONGEST = 24;
/** Of each name of a pair. */
const LONGEST_OF_TWO = 13;

interface Entry {
  name: Node[];
  value: number;
  choose?: Focus;
}

export class Partners extends Panel<SimilarityView> {
  readonly element = h("section", { class: "card partners" });
  private view: SimilarityView | null = null;
  private pointed: Focus | null = null;

  constructor(private readonly actions: Actions) {
    super();
  }

  update(view: SimilarityView): void {
    this.view = view;
    this.show();
  }

  point(focus: Focus | null): void {
    this.pointed = focus;
    this.show();
  }

  private show(): void {
    const { view } = this;
    if (!view) return;
    const focus = this.pointed ?? view.selected;
    const side = SIDES.find((one) => focus?.[one] !== undefined);
    if (!view.account.table) this.showShares(view);
    else if (focus && side !== undefined) this.showPartners(view, side, focus);
    else this.showPairs(view);
  }

  private showPairs(view: SimilarityView): void {
    const { account } = view;
    const { pairs } = strongestPairs(account.table!, 1);
    const entries = pairs.slice(0, MOST).map(({ first, second, value }): Entry => {
      const names = [
        this.nameOf(view, "first", first, LONGEST_OF_TWO),
        this.nameOf(view, "second", second, LONGEST_OF_TWO),
      ];
      return { name: [names[0]!, document.createTextNode(" \u2013 "), names[1]!], value, choose: { first, second } };
    });
    this.fill(
      view,
      [h("h2", {}, "Strongest pairs"), h("span", { class: "hint" }, "hover or click a token")],
      entries,
      "",
    );
  }

  private showPartners(view: SimilarityView, side: SideName, focus: Focus): void {
    const { lines, table, similarity } = view.account;
    const unit = focus[side]!;
    const other = otherSide(side);
    const entries = [...partnersOf(table!, side, unit)].map(
      (value, partner): Entry => ({
        name: [this.nameOf(view, other, partner)],
        value,
        choose: { [side]: unit, [other]: partner } as Focus,
      }),
    );
    entries.push({ name: [document.createTextNode(BIAS)], value: lines[side].margins[unit]! });
    entries.sort((one, two) => Math.abs(two.value) - Math.abs(one.value));
    const title = h("h2", {}, "Partners of ", named(lines[side].units.shown[unit]));
    const close = h("button", { type: "button", class: "quiet", click: () => this.actions.choose({}) }, "show all");
    const total = `Together ${format.signed(lines[side].shares[unit]!)} of ${format.number(similarity.value)}.`;
    const matched = side === "first" ? this.matchOf(view, unit) : "";
    const pinned = view.selected !== null;
    this.fill(
      view,
      [title, ...(pinned ? [close] : [])],
      entries.slice(0, MOST),
      [total, matched].filter(Boolean).join(" "),
    );
  }

  private showShares(view: SimilarityView): void {
    const entries = SIDES.flatMap((side) =>
      [...view.account.lines[side].shares].map((value, unit) => ({ name: [this.nameOf(view, side, unit)], value })),
    ).sort((one, two) => Math.abs(two.value) - Math.abs(one.value));
    const note = "Only what each token does was computed, not the table of pairs.";
    this.fill(view, [h("h2", {}, "Contributions of the tokens")], entries.slice(0, MOST), note);
  }

  /** Of late interaction, the token that one was matched to. */
  private matchOf({ account: { similarity, lines } }: SimilarityView, unit: number): string {
    const { matches } = similarity;
    if (!matches) return "";
    const found = lines.first.units.members[unit]!.filter((token) => matches.token[token]! >= 0);
    const names = found.map((token) => {
      const name = similarity.sides.second.tokens.token[matches.token[token]!] ?? "";
      return `${shortLabel(name, LONGEST)} (${format.number(matches.value[token]!)})`;
    });
    return names.length > 0 ? `Matched to ${names.join(", ")}.` : "";
  }

  private nameOf({ account }: SimilarityView, side: SideName, unit: number, longest = LONGEST): HTMLElement {
    const { units } = account.lines[side];
    return bdi(shortLabel(units.shown[unit] ?? "", longest), { class: units.special[unit] ? "special" : "" });
  }

  private fill({ dark }: SimilarityView, head: Node[], entries: Entry[], note: string): void {
    const most = largest(entries.map(({ value }) => value)) || 1;
    const diverging = entries.some(({ value }) => value < 0);
    const bars = entries.map(({ name, value, choose }) =>
      barLine({
        name: choose ? h("button", { type: "button", class: "key" }, name) : h("span", { class: "key special" }, name),
        size: value / most,
        diverging,
        colour: signColour(value, dark),
        value: format.signed(value),
        ...(choose ? { choose: (): void => this.actions.choose(choose) } : {}),
      }),
    );
    this.element.replaceChildren(
      h("header", {}, head),
      h("ol", { class: diverging ? "bars diverging" : "bars" }, bars),
      h("p", { class: "note", hidden: note === "" }, note),
    );
  }
}
