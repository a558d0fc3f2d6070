/** What is explained, as a sum: the tokens' shares and the bias are the model's own value, and how exactly. */
import { bdi, h } from "../../draw/dom";
import type { FlowView } from "../../draw/flowview";
import type { Explanation } from "../../model/explanation";
import * as format from "../../model/format";
import { cut, holdsSink, phrase, secondText } from "../../model/tokens";
import { Panel } from "../panel";

const TEXTS: [string, number][] = [
  ["first text", 0],
  ["second text", 1],
  ["special tokens", -1],
];

export class Total extends Panel<FlowView> {
  readonly element: HTMLElement;
  private readonly title = h("h2");
  private readonly sum = h("dl", { class: "sum" });
  private readonly meaning = h("p", { class: "note" });
  private readonly proof = h("p", { class: "note" });

  constructor() {
    super();
    this.element = h(
      "section",
      { class: "card total" },
      h("header", {}, this.title),
      this.meaning,
      this.sum,
      this.proof,
    );
  }

  update({ explanation, target, targetIndex }: FlowView): void {
    const [own, source] = explanation.attribution(targetIndex);
    const { tokens } = explanation.stack("decoder");
    const known = own!.map((value) => (Number.isNaN(value) ? 0 : value));
    const sunk = known.filter((_, token) => holdsSink(tokens, [token]));
    const rest = known.filter((_, token) => !holdsSink(tokens, [token]));
    const parts: [string, Float32Array][] =
      secondText(tokens) < 0
        ? [[`${sunk.length > 0 ? "other" : "all"} ${source ? "target " : ""}tokens`, rest]]
        : TEXTS.map(([name, segment]) => [
            name,
            known.filter((_, token) => tokens.segment![token] === segment && !holdsSink(tokens, [token])),
          ]);
    if (source) parts.push(["source tokens", source]);
    if (sunk.length > 0) parts.push(["attention sinks", sunk]);
    this.title.replaceChildren("Sum of the contributions to ", bdi(cut(phrase(target.name), 40), { class: "token" }));
    this.sum.replaceChildren(
      ...parts.flatMap(([name, values]) => line(name, total(values), "")),
      ...(target.routed === undefined ? [] : line("routing (where it looked)", target.routed, "")),
      ...(explanation.estimate || target.bias === null ? [] : line("biases", target.bias, "")),
      ...line(explanation.estimate ? "the state" : "the model\u2019s value", target.value, "result"),
    );
    this.proof.textContent = explanation.estimate ?? `${proofOf(explanation)} \u00b7 ${explanation.method}`;
    const { compared, note } = explanation;
    this.meaning.textContent = [compared, note, target.remark].filter(Boolean).join(". ");
    this.meaning.hidden = this.meaning.textContent === "";
  }
}

function proofOf({ error, estimate }: Explanation): string {
  if (estimate !== null) return estimate;
  return error === null
    ? "These shares are not meant to add up to the value"
    : `Exact to ${format.bound(error)} at every layer`;
}

function total(values: Float32Array): number {
  return values.reduce((sum, value) => sum + value, 0);
}

function line(name: string, value: number, kind: string): HTMLElement[] {
  return [h("dt", { class: kind }, name), h("dd", { class: kind }, format.signed(value))];
}
