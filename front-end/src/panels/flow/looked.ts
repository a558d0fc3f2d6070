/** Where the model looked: what stays with attention weights, by the token that they look at. Hidden where they are constants. */
import { bdi, h } from "../../draw/dom";
import { type FlowView, largest, signColour } from "../../draw/flowview";
import * as format from "../../model/format";
import { holdsSink, label, shortLabel } from "../../model/tokens";
import { barLine } from "../bar";
import { Panel } from "../panel";

const MOST = 8;

export class Looked extends Panel<FlowView> {
  readonly element: HTMLElement;
  private readonly bars = h("ol", { class: "bars diverging" });

  constructor() {
    super();
    this.element = h(
      "section",
      { class: "card looked" },
      h("header", {}, h("h2", {}, "Where the model looked")),
      this.bars,
      h(
        "p",
        { class: "hint" },
        "What stays with attention weights and is no token\u2019s own, by the token looked at.",
      ),
    );
  }

  update({ explanation, target, dark }: FlowView): void {
    const looked = target.lookedAt ?? [];
    this.element.hidden = looked.length === 0;
    const own = explanation.stack("decoder").tokens;
    const most = largest(looked) || 1;
    const strongest = [...looked.keys()].toSorted((a, b) => Math.abs(looked[b]!) - Math.abs(looked[a]!)).slice(0, MOST);
    this.bars.replaceChildren(
      ...strongest.map((place) => {
        const inside = place < own.token.length;
        const table = inside ? own : explanation.stack("encoder").tokens;
        const token = inside ? place : place - own.token.length;
        const sink = holdsSink(table, [token]);
        const value = looked[place]!;
        return barLine({
          name: h("span", { class: sink ? "key sink" : "key" }, bdi(label(table.token[token]!))),
          size: value / most,
          diverging: true,
          colour: signColour(value, dark),
          value: format.signed(value),
          title: `${shortLabel(table.token[token]!, 60)}${sink ? " (attention sink)" : ""}`,
        });
      }),
    );
  }
}
