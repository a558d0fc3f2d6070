/** Where it came from and where it went: the edges of the node that is followed, or else the tokens' shares of the value. */
import { bdi, h } from "../../draw/dom";
import { nodeTitle } from "../../draw/flowmarks";
import { eachOf, type FlowView, largest, signColour } from "../../draw/flowview";
import { type FlowNode, touching } from "../../model/flow";
import * as format from "../../model/format";
import type { Store } from "../../model/store";
import { holdsSink, label, shortLabel } from "../../model/tokens";
import { barLine } from "../bar";
import { Panel } from "../panel";

const MOST = 24;

/** Of every row its share of the value: of an encoder's token not what the first layer takes, but all that came from it. */
function sharesOf({ explanation, targetIndex, flow, state, stack }: FlowView): number[] {
  const shares = [...flow.relevance[0]!].fill(0, flow.own);
  const source = state.part === "encoder" ? undefined : explanation.attribution(targetIndex)[1];
  source?.forEach((value, token) => {
    shares[flow.rows.of[stack.tokens.token.length + token]!]! += value;
  });
  return shares;
}

interface Entry {
  row: number;
  value: number;
  /** The node at the other end. */
  node: FlowNode;
}

export class Ends extends Panel<FlowView> {
  readonly element: HTMLElement;

  constructor(private readonly store: Store) {
    super();
    this.element = h("section", { class: "card ends" });
  }

  update(view: FlowView): void {
    const { node, flow } = view;
    if (!node) {
      const entries = sharesOf(view).map((value, row) => ({ row, value, node: { depth: 0, row } }));
      this.element.replaceChildren(
        h("header", {}, h("h2", {}, "Contributions of the tokens")),
        this.bars(view, entries),
      );
      return;
    }
    const { into, out } = touching(flow, node);
    const rest = (values: Float64Array[]): number => values[node.depth]![node.row]!;
    const sections: [string, Entry[], number][] = [
      [
        "came from",
        into.map(({ from, value }) => ({ row: from, value, node: { depth: node.depth - 1, row: from } })),
        rest(flow.rest.into),
      ],
      [
        "went to",
        out.map(({ to, value }) => ({ row: to, value, node: { depth: node.depth + 1, row: to } })),
        rest(flow.rest.out),
      ],
    ];
    const title = h("h2", {}, bdi(nodeTitle(view, node.depth, node.row), { class: "token" }));
    const showAll = (): void => this.store.set({ depth: -1, token: -1 });
    const close = h("button", { type: "button", class: "quiet", click: showAll }, "show all");
    const relevance = h("p", { class: "note" }, `relevance ${format.signed(flow.relevance[node.depth]![node.row]!)}`);
    this.element.replaceChildren(
      h("header", {}, title, close),
      relevance,
      ...sections.flatMap(([name, entries, others]) => [
        ...(entries.length > 0 || others !== 0 ? [h("h3", {}, name)] : []),
        ...(entries.length > 0 ? [this.bars(view, entries)] : []),
        ...(others !== 0 ? [h("p", { class: "note rest" }, `sum of smaller edges ${format.signed(others)}`)] : []),
      ]),
    );
  }

  private bars({ flow, dark, stack, state }: FlowView, all: Entry[]): HTMLElement {
    const isSink = ({ row }: Entry): boolean => holdsSink(stack.tokens, flow.rows.members[row] ?? []);
    const bySize = all.toSorted((a, b) => Math.abs(b.value) - Math.abs(a.value));
    // Sinks come last, and bars are scaled to the others.
    const others = bySize.filter((entry) => !isSink(entry)).slice(0, MOST);
    const entries = [...others, ...bySize.filter(isSink)];
    const diverging = entries.some(({ value }) => value < 0);
    const most = largest((others.length > 0 ? others : entries).map(({ value }) => value)) || 1;
    return h(
      "ol",
      { class: ["bars", diverging && "diverging", state.units === "sentence" && "long"].filter(Boolean).join(" ") },
      entries.map(({ row, value, node }) => {
        const members = flow.rows.members[row] ?? [];
        const sink = holdsSink(stack.tokens, members);
        const text = flow.rows.shown[row]!;
        const key = h("button", { type: "button", class: sink ? "key sink" : "key" }, bdi(label(text)));
        const each = state.units === "sentence" ? eachOf(value, members) : "";
        return barLine({
          name: each === "" ? key : h("span", { class: "summed" }, key, h("small", {}, each)),
          size: value / most,
          diverging,
          colour: signColour(value, dark),
          value: format.signed(value),
          title: `${shortLabel(text, 60)}${eachOf(value, members)}${sink ? " (attention sink)" : ""}`,
          choose: () => this.store.set({ depth: node.depth, token: members[0] ?? -1 }),
        });
      }),
    );
  }
}
