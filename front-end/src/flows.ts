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
import { factsPopover } from "./panels/facts";
import { Ends } from "./panels/flow/ends";
import { FlowGraph } from "./panels/flow/graph";
import { type Ask, PredictionsPanel } from "./panels/flow/predictions";
import { AttributionText } from "./panels/flow/text";
import { FlowToolbar } from "./panels/flow/toolbar";
import { Total } from "./panels/flow/total";
import { ElementPanel, type Panel } from "./panels/panel";
import type { Part, Scene, Takeaway } from "./part";
import type { Shortcut } from "./shortcuts";

const SHARES = [50, 70, 80, 90, 95, 99, 100];

export class Flows extends ElementPanel<Scene> implements Part {
  readonly element: HTMLElement;
  readonly shortcuts: Shortcut[];
  readonly takeaway: Takeaway;
  private readonly toolbar: FlowToolbar;
  private readonly graph: FlowGraph;
  private readonly panels: Panel<FlowView>[];
  private readonly title = h("h1");
  private readonly note = h("span", { class: "hint" });
  private readonly corner = h("div");
  private readonly hint = h("p", { class: "hint" });
  private readonly spoken = h("p", { class: "visually-hidden", role: "status" });
  private view: FlowView | null = null;
  private drawn = "";

  constructor(
    private readonly store: Store,
    private readonly targets: Targets,
    views: Choice[],
    ask: Ask | null,
  ) {
    super();
    this.toolbar = new FlowToolbar(store, views, targets, targets.first?.explanation.hasEncoder ?? false);
    this.graph = new FlowGraph(store);
    const details = [new Total(), new PredictionsPanel(ask), new AttributionText(store), new Ends(store)];
    this.panels = [this.graph, ...details];
    const place = h("div", { class: "view" });
    const card = h(
      "section",
      { class: "card map-card flow-card" },
      h("header", {}, h("div", {}, this.title, this.note), this.corner),
      place,
      h("footer", {}, this.hint),
      this.spoken,
    );
    this.graph.mount(place);
    const inspector = h("div", { class: "inspector" });
    for (const panel of details) panel.mount(inspector);
    this.element = h("div", { class: "flows" });
    this.toolbar.mount(this.element);
    this.element.append(h("article", { class: "stage flow-stage" }, card, inspector));
    this.shortcuts = this.makeShortcuts();
    this.takeaway = this.makeTakeaway();
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
      view.explanation.estimate ? "Flow by rollout to " : "Flow to ",
      bdi(cut(phrase(view.target.name), 40)),
    );
    const edges = `${view.flow.edges.length} edges, at least ${format.share(carried)} of the flow of every layer`;
    this.note.replaceChildren(bdi(view.explanation.model), view.stack.followed ? ` \u00b7 ${edges}` : "");
    this.hint.textContent = hintOf(view.explanation);
    for (const panel of this.panels) panel.update(view);
    this.spoken.textContent = spokenOf(view);
  }

  override dispose(): void {
    for (const panel of [this.toolbar, ...this.panels]) panel.dispose();
    super.dispose();
  }

  private makeView(state: State, { ink, dark }: Scene["look"]): FlowView {
    const { explanation, place } = this.targets.at(state);
    const stack = explanation.part(state.part);
    const flow = flowOf(stack, place, { share: state.share / 100, units: state.units });
    const row = flow.rows.of[state.token] ?? -1;
    const node = state.depth >= 0 && row >= 0 && stack.followed ? { depth: state.depth, row } : null;
    const target = explanation.targets[place]!;
    const predictions = this.targets.predictions(explanation);
    return { state, explanation, stack, target, place, predictions, flow, node, ink, dark };
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
      { keys: "[ and ]", does: "previous and next value that is explained", acts: { "[": target(-1), "]": target(1) } },
      { keys: "+  \u2212", does: "more and less of the flow", acts: { "+": share(1), "=": share(1), "-": share(-1) } },
      { keys: "arrows", does: "move to another node and follow it" },
      { keys: "Escape", does: "show all again", acts: { Escape: () => this.store.set({ depth: -1, token: -1 }) } },
    ];
  }

  private makeTakeaway(): Takeaway {
    return {
      name: () => `normscope-flow-${this.store.state.target + 1}`,
      note: () => "Data is exported as float32: the edges that are drawn.",
      figure: () => flowFigure(this.view!, this.graph.drawing),
      csv: () => Promise.resolve(flowCsv(this.view!)),
      json: () => Promise.resolve(flowJson(this.view!)),
    };
  }
}

function hintOf({ estimate }: Explanation): string {
  if (estimate !== null) return "A band is as wide as the share that flows. Thorns: smaller edges together.";
  return "A band is as wide as what flows. Orange raises the value, violet lowers it. Thorns: smaller edges together; grey: biases.";
}

function spokenOf({ target, flow, node }: FlowView): string {
  if (!node) return `Flow to ${phrase(target.name)}, ${flow.edges.length} edges`;
  const value = flow.relevance[node.depth]![node.row]!;
  return `${flow.rows.shown[node.row]} at depth ${node.depth}: relevance ${format.signed(value)}`;
}

function factsOf({ error, facts, estimate }: Explanation): HTMLElement {
  if (estimate !== null) return h("span", { class: "hint estimate" }, "estimate");
  const told =
    "At every layer the tokens\u2019 relevance and the biases add up to the model\u2019s own value. Largest relative error:";
  return factsPopover(
    error,
    facts,
    [h("p", {}, `${told} ${format.error(error)}`)],
    "Conservation: click for model facts.",
  );
}
