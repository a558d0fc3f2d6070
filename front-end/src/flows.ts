/** The flow to a prediction: the graph of tokens by layers, what it adds up to, and where a node's share came from and went. */
import type { Choice } from "./draw/controls";
import { bdi, h } from "./draw/dom";
import type { FlowView } from "./draw/flowview";
import { flowFigure } from "./exports/figure";
import { flowCsv, flowJson } from "./exports/records";
import type { Explanation } from "./model/explanation";
import { flowOf } from "./model/flow";
import * as format from "./model/format";
import { ROLLOUT, type State } from "./model/state";
import type { Store } from "./model/store";
import type { Targets } from "./model/targets";
import { cut, phrase } from "./model/tokens";
import { exactTo, factsPopover } from "./panels/facts";
import { Cuts, type Verify } from "./panels/flow/cuts";
import { Ends } from "./panels/flow/ends";
import { FlowGraph } from "./panels/flow/graph";
import { Looked } from "./panels/flow/looked";
import { PredictionsPanel, type RequestExplanation } from "./panels/flow/predictions";
import { AttributionText } from "./panels/flow/text";
import { FlowToolbar } from "./panels/flow/toolbar";
import { Total } from "./panels/flow/total";
import { Panel } from "./panels/panel";
import type { Exportable, Scene, Section } from "./section";
import type { Shortcut } from "./shortcuts";

const SHARES = [50, 70, 80, 90, 95, 99, 100];

export class Flows extends Panel<Scene> implements Section {
  readonly element: HTMLElement;
  readonly shortcuts: Shortcut[];
  readonly exportable: Exportable;
  private readonly toolbar: FlowToolbar;
  private readonly graph: FlowGraph;
  private readonly panels: Panel<FlowView>[];
  private readonly title = h("h1");
  private readonly note = h("span", { class: "hint" });
  private readonly corner = h("div");
  private readonly hint = h("p", { class: "hint" });
  private readonly announcement = h("p", { class: "visually-hidden", role: "status" });
  private view: FlowView | null = null;
  private drawn = "";

  constructor(
    private readonly store: Store,
    private readonly targets: Targets,
    views: Choice[],
    explain: RequestExplanation | null,
    verify: Verify | null,
  ) {
    super();
    this.toolbar = new FlowToolbar(store, views, targets, targets.first?.explanation.hasEncoder ?? false);
    this.graph = new FlowGraph(store);
    const details = [
      new Total(),
      new PredictionsPanel(explain),
      new AttributionText(store),
      new Ends(store),
      new Cuts(store, verify),
      new Looked(),
    ];
    this.panels = [this.graph, ...details];
    for (const panel of [this.toolbar, ...this.panels]) this.own(panel);
    const card = h(
      "section",
      { class: "card map-card flow-card" },
      h("header", {}, h("div", {}, this.title, this.note), this.corner),
      h("div", { class: "view" }, this.graph),
      h("footer", {}, this.hint),
      this.announcement,
    );
    const inspector = h("div", { class: "inspector" }, details);
    this.element = h(
      "div",
      { class: "flows" },
      this.toolbar,
      h("article", { class: "stage flow-stage" }, card, inspector),
    );
    this.shortcuts = this.makeShortcuts();
    this.exportable = this.makeExportable();
  }

  update({ shared, look }: Scene): void {
    this.toolbar.update(shared);
    const to = this.targets.fitted(shared.target) === ROLLOUT ? shared.query : "";
    const name = [
      shared.target,
      to,
      shared.share,
      shared.depth,
      shared.token,
      shared.units,
      shared.part,
      look.dark,
    ].join();
    if (name === this.drawn && this.graph.element.clientWidth > 0) return;
    const view = this.makeView(shared, look);
    if (view.explanation !== this.view?.explanation) this.corner.replaceChildren(factsOf(view.explanation));
    this.view = view;
    this.drawn = name;
    const carried = Math.min(...view.flow.carried);
    this.title.replaceChildren(
      view.explanation.estimate ? "Flow by rollout to " : view.stack.followed ? "Flow to " : "Attribution of ",
      bdi(cut(phrase(view.target.name), 40)),
    );
    const asked = shared.share / 100;
    const drawn = carried >= asked * (1 - 1e-9) ? `${shared.share} %` : `${format.share(carried)}, all that is here,`;
    const edges = `${view.flow.edges.length} edges: ${drawn} of the flow of every layer`;
    const { compared } = view.explanation;
    const about = [compared, view.stack.followed ? edges : ""].filter(Boolean);
    this.note.replaceChildren(bdi(view.explanation.model), ...about.map((text) => ` \u00b7 ${text}`));
    this.hint.textContent = hintOf(view.explanation);
    this.hint.parentElement!.hidden = !view.stack.followed;
    for (const panel of this.panels) panel.update(view);
    this.announcement.textContent = announcementOf(view);
  }

  private makeView(state: State, { ink, dark }: Scene["look"]): FlowView {
    const { explanation, targetIndex } = this.targets.at(state);
    const stack = explanation.stack(state.part);
    const flow = flowOf(stack, targetIndex, { share: state.share / 100, units: state.units });
    const row = flow.rows.of[state.token] ?? -1;
    const node = state.depth >= 0 && row >= 0 && stack.followed ? { depth: state.depth, row } : null;
    const target = explanation.targets[targetIndex]!;
    const predictions = this.targets.predictions(explanation);
    return { state, explanation, stack, target, targetIndex, predictions, flow, node, ink, dark };
  }

  private makeShortcuts(): Shortcut[] {
    const share = (by: number) => (): void => {
      const { state } = this.store;
      const next = by > 0 ? SHARES.find((one) => one > state.share) : SHARES.findLast((one) => one < state.share);
      if (next !== undefined) this.store.set({ share: next });
    };
    const target = (by: number) => (): void => {
      this.store.set(this.targets.choose(this.store.state.target + by));
    };
    return [
      {
        keys: "[ and ]",
        description: "previous and next explained value",
        actions: { "[": target(-1), "]": target(1) },
      },
      {
        keys: "+  \u2212",
        description: "show more or less of the flow",
        actions: { "+": share(1), "=": share(1), "-": share(-1) },
      },
      { keys: "arrows", description: "move to another node and follow it" },
      {
        keys: "Escape",
        description: "show all again",
        actions: { Escape: () => this.store.set({ depth: -1, token: -1 }) },
      },
    ];
  }

  private makeExportable(): Exportable {
    return {
      name: () => `normscope-flow-${this.store.state.target + 1}`,
      note: () => "Data is exported as float32: the edges that are drawn.",
      figure: () => flowFigure(this.view!, this.graph.drawing),
      csv: () => Promise.resolve(flowCsv(this.view!)),
      json: () => Promise.resolve(flowJson(this.view!)),
    };
  }
}

function hintOf({ estimate, targets }: Explanation): string {
  if (estimate !== null) return "The width of a band is the share that flows. Thorns: sums of smaller edges.";
  const grey = targets[0]?.routed === undefined ? "biases" : "biases, and what stays with attention weights";
  return `The width of a band is the amount that flows. Orange raises the value, violet lowers it. Thorns: sums of smaller edges; grey: ${grey}.`;
}

function announcementOf({ target, flow, node }: FlowView): string {
  if (!node) return `Flow to ${phrase(target.name)}, ${flow.edges.length} edges`;
  const value = flow.relevance[node.depth]![node.row]!;
  return `${flow.rows.shown[node.row]} at depth ${node.depth}: relevance ${format.signed(value)}`;
}

function factsOf({ error, facts, estimate, targets }: Explanation): HTMLElement {
  if (estimate !== null) return h("span", { class: "hint estimate" }, "estimate");
  if (error === null) return factsPopover("how it was made", facts, [], "Click for model facts.");
  const parts =
    targets[0]?.routed === undefined ? " and the biases" : ", the biases and what stays with attention weights";
  const description = `At every layer, the relevance of all tokens${parts} add up to the model\u2019s value. Largest relative error:`;
  const proof = [h("p", {}, `${description} ${format.error(error)}`)];
  return factsPopover(exactTo(error), facts, proof, "Conservation: click for model facts.");
}
