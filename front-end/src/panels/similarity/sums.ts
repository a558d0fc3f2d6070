/** How the similarity adds up, and how exactly. */
import { h } from "../../draw/dom";
import type { SimilarityView } from "../../draw/similarityview";
import * as format from "../../model/format";
import { sumsOf } from "../../model/similarity";
import { Panel } from "../panel";

export class Sums extends Panel<SimilarityView> {
  readonly element: HTMLElement;
  private readonly sum = h("dl", { class: "sum" });
  private readonly proof = h("p", { class: "note" });

  constructor() {
    super();
    const header = h("header", {}, h("h2", {}, "How it adds up"));
    this.element = h("section", { class: "card total" }, header, this.sum, this.proof);
  }

  update({ account: { similarity } }: SimilarityView): void {
    const sums = sumsOf(similarity);
    this.sum.replaceChildren(
      ...sums.flatMap(([name, value], index) => {
        const kind = index === sums.length - 1 ? "result" : "";
        return [h("dt", { class: kind }, name), h("dd", { class: kind }, format.addend(value))];
      }),
    );
    this.proof.textContent = `Exact to ${format.error(similarity.error)}. A bias is what no token of a text put in.`;
  }
}
