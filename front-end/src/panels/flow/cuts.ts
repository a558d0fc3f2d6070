/** The strongest edges, cut in the real model: what the explanation predicts of each, and what became of the value. */
import { bdi, h } from "../../draw/dom";
import { type FlowView, largest, signColour } from "../../draw/flowview";
import type { Explanation } from "../../model/explanation";
import * as format from "../../model/format";
import type { CutEdge, VerificationPayload } from "../../model/payload";
import type { Store } from "../../model/store";
import { cut, phrase, shortLabel } from "../../model/tokens";
import { Panel } from "../panel";

/** Cut the strongest edges of one value of an explanation. */
export type Verify = (explanation: Explanation, target: number) => Promise<VerificationPayload>;

export class Cuts extends Panel<FlowView> {
  readonly element: HTMLElement;
  private readonly button = h(
    "button",
    { type: "button", class: "quiet", click: () => void this.verify() },
    "cut the strongest edges",
  );
  private readonly table = h("table");
  private readonly told = h("p", { class: "note", role: "status" });
  private readonly meaning = h(
    "p",
    { class: "hint" },
    "Each edge (one key\u2019s value for one query at one layer) is taken out of the real model, and everything after it becomes " +
      "what it then is. Predictions keep attention weights, norms and slopes as they were: the difference is what that leaves out.",
  );
  private view: FlowView | null = null;

  constructor(
    private readonly store: Store,
    private readonly request: Verify | null,
  ) {
    super();
    this.element = h(
      "section",
      { class: "card cuts" },
      h("header", {}, h("h2", {}, "Proof by cutting"), this.button),
      this.table,
      this.told,
      this.meaning,
    );
  }

  update(view: FlowView): void {
    if (view.target !== this.view?.target) this.told.textContent = "";
    this.view = view;
    const { explanation, target, stack, state } = view;
    const { verified } = target;
    const can = this.request !== null && stack.followed && explanation.estimate === null && state.part !== "encoder";
    this.element.hidden = !verified && !can;
    this.button.hidden = !can || verified !== undefined;
    this.table.hidden = !verified;
    if (!verified) return;
    const sizes = verified.edges.flatMap(({ predicted, observed }) => [predicted, observed]);
    const most = largest(sizes) || 1;
    const value = bdi(cut(phrase(target.name), 20), { class: "token" });
    this.table.replaceChildren(
      h("caption", {}, "How ", value, " changes without an edge"),
      h(
        "thead",
        {},
        h("tr", {}, ...["edge", "", "predicted", "observed"].map((name) => h("th", { scope: "col" }, name))),
      ),
      h(
        "tbody",
        {},
        ...verified.edges.map((edge) => this.row(view, edge, most)),
        h("tr", { class: "result" }, h("th", { scope: "row" }, "all together"), h("td"), ...cells(verified.together)),
      ),
    );
    const { correlation } = verified;
    this.told.textContent =
      correlation === null ? "" : `Correlation of predicted and observed: ${correlation.toFixed(2)}`;
  }

  private row({ explanation, dark }: FlowView, edge: CutEdge, most: number): HTMLElement {
    const { keys } = explanation.stack("decoder");
    const [from, to] = [edge.key, edge.query].map((place) => bdi(shortLabel(keys.token[place] ?? "", 14)));
    const changes: [number, number] = [edge.predicted, edge.observed];
    const bars = changes.map((change) => {
      const bar = h("i");
      const length = (50 * Math.abs(change)) / most;
      bar.style.width = `${length}%`;
      bar.style.marginInlineStart = `${change < 0 ? 50 - length : 50}%`;
      bar.style.background = signColour(change, dark);
      return bar;
    });
    const follow = (): void => this.store.set({ depth: edge.layer, token: edge.query });
    return h(
      "tr",
      { click: follow },
      h("th", { scope: "row" }, h("small", {}, `layer ${edge.layer}`), " ", from!, " \u2192 ", to!),
      h("td", {}, h("span", { class: "track" }, ...bars)),
      ...cells(changes),
    );
  }

  private async verify(): Promise<void> {
    const { view } = this;
    if (!view || !this.request) return;
    this.button.disabled = true;
    this.told.textContent = "Cutting edges in the model\u2026";
    try {
      view.target.verified = await this.request(view.explanation, view.targetIndex);
      if (this.view?.target === view.target) this.update(this.view);
    } catch (error) {
      this.told.textContent = error instanceof Error ? error.message : String(error);
    }
    this.button.disabled = false;
  }
}

function cells(changes: [number, number]): HTMLElement[] {
  return changes.map((change) => h("td", { class: "number" }, format.addend(change)));
}
