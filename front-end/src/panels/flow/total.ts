/** What is explained, as a sum: the tokens' shares and the bias are the model's own value, and how exactly. */
import { bdi, h } from "../../draw/dom";
import type { FlowView } from "../../draw/flowview";
import * as format from "../../model/format";
import { cut, holdsSink, phrase } from "../../model/tokens";
import { Panel } from "../panel";

export class Total extends Panel<FlowView> {
  readonly element: HTMLElement;
  private readonly title = h("h2");
  private readonly sum = h("dl", { class: "sum" });
  private readonly proof = h("p", { class: "note" });

  constructor() {
    super();
    this.element = h("section", { class: "card total" }, h("header", {}, this.title), this.sum, this.proof);
  }

  update({ explanation, target, targetIndex }: FlowView): void {
    const [own, source] = explanation.attribution(targetIndex);
    const { tokens } = explanation.stack("decoder");
    const sunk = own!.filter((_, token) => holdsSink(tokens, [token]));
    const rest = own!.filter((_, token) => !holdsSink(tokens, [token]));
    const parts: [string, Float32Array][] = [
      [`${sunk.length > 0 ? "other" : "all"} ${source ? "target " : ""}tokens`, rest],
    ];
    if (sunk.length > 0) parts.unshift(["attention sinks", sunk]);
    if (source) parts.push(["source tokens", source]);
    this.title.replaceChildren("Sum of the contributions to ", bdi(cut(phrase(target.name), 40), { class: "token" }));
    this.sum.replaceChildren(
      ...parts.flatMap(([name, values]) => line(name, total(values), "")),
      ...(target.routed === undefined ? [] : line("routing (where it looked)", target.routed, "")),
      ...(explanation.estimate ? [] : line("biases", target.bias, "")),
      ...line(explanation.estimate ? "the state" : "the model\u2019s value", target.value, "result"),
    );
    this.proof.textContent =
      explanation.estimate ??
      `Conserved at every layer within ${format.error(explanation.error)} \u00b7 ${explanation.method}`;
  }
}

function total(values: Float32Array): number {
  return values.reduce((sum, value) => sum + value, 0);
}

function line(name: string, value: number, kind: string): HTMLElement[] {
  return [h("dt", { class: kind }, name), h("dd", { class: kind }, format.signed(value))];
}
