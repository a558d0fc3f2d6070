/** The explorer itself, mounted anywhere: maps and flows behind one head, one state for all. */
import type { Choice } from "./draw/controls";
import { h } from "./draw/dom";
import { Flows } from "./flows";
import type { Host } from "./hosts/host";
import { Maps } from "./maps";
import { type Analysis, decodeAnalysis } from "./model/analysis";
import { decodeExplanation, type Explanation } from "./model/explanation";
import { Pane } from "./model/pane";
import type { Payload, PredictionPayload } from "./model/payload";
import { type ExplainRequest, formatRequest, parseRequest } from "./model/request";
import { FLOW, fitFlow, fitState, formatState, initialState, parseState, type State } from "./model/state";
import { Store } from "./model/store";
import { Targets } from "./model/targets";
import { countOf, kindsOf, label } from "./model/tokens";
import { Page } from "./page";
import { Exports } from "./panels/exports";
import type { Verify } from "./panels/flow/cuts";
import { type Heading, Masthead } from "./panels/masthead";
import { VIEWS, viewsOf } from "./panels/views";
import type { Scene, Section } from "./section";
import type { Shortcut } from "./shortcuts";

const VERSION = 5;
const HEADS = "heads";

/** Show a payload in an element; returns a function that removes it. `start` overrides the initial state. */
export async function mountExplorer(
  root: HTMLElement,
  payload: Payload,
  host: Host,
  start: Partial<State> = {},
): Promise<() => void> {
  if (payload.version !== VERSION) {
    throw new Error(`The data has format version ${payload.version}, but this explorer reads version ${VERSION}.`);
  }
  const analyses = await Promise.all(payload.analyses.map(decodeAnalysis));
  const numbered = payload.explanations.map((one, index) => decodeExplanation({ id: String(index), ...one }));
  const explanations = await Promise.all(numbered);
  const explorer = new Explorer(root, panesOf(analyses), explanations, payload.predictions, host, start);
  return () => explorer.dispose();
}

/** A pane for each analysis, aligned with the first one. */
export function panesOf([one, ...others]: Analysis[]): Pane[] {
  if (!one) return [];
  const first = new Pane(0, one, null);
  return [first, ...others.map((analysis, index) => new Pane(index + 1, analysis, first))];
}

/** Show an error message in place of the explorer. */
export function failure(root: HTMLElement, error: unknown): void {
  const text = error instanceof Error ? error.message : String(error);
  const message = `This analysis cannot be shown: ${label(text).replaceAll("\u2423", " ")}`;
  root.replaceChildren(h("p", { class: "failure", role: "alert" }, message));
}

class Explorer {
  private readonly store: Store;
  private readonly page: Page<State>;
  private readonly initial: State;
  private readonly views: string[];
  private readonly targets: Targets;
  private readonly maps: Maps | null;
  private readonly flows: Flows | null;
  private readonly masthead: Masthead;
  /** The request of the address that is being explained. */
  private pending = "";

  private viewShown = "";

  /** The sections shown so far: a section is added to the page when it is first shown. */
  private readonly mounted = new Set<Section>();

  constructor(
    private readonly root: HTMLElement,
    private readonly panes: Pane[],
    private readonly explanations: Explanation[],
    predictions: PredictionPayload[],
    private readonly host: Host,
    start: Partial<State>,
  ) {
    const analyses = panes.map(({ analysis }) => analysis);
    this.targets = new Targets(explanations, analyses.length === 1 ? analyses[0]! : null, predictions);
    const count = analyses.length;
    const names = analyses.flatMap((analysis, index) => viewsOf(analysis, { index, count }));
    this.views = [...new Set(names), ...(this.targets.any ? [FLOW] : [])];
    this.initial = { ...initialState(analyses[0] ?? null, explanations[0] ?? null), ...start };
    this.store = new Store(this.withHeads(this.fitted(parseState(host.readState(), this.initial))));
    this.page = new Page(root, host, this.store);
    const choices: Choice[] = this.views.map((value) => ({ value, label: VIEWS[value]?.label ?? "Flow" }));
    this.maps = panes.length > 0 ? new Maps(this.store, panes, host, choices) : null;
    const explain = host.explain ? (request: ExplainRequest): Promise<void> => this.explain(request) : null;
    const verify: Verify | null = host.verify ? ({ id }, target) => host.verify!(id, target) : null;
    this.flows = this.targets.any ? new Flows(this.store, this.targets, choices, explain, verify) : null;
    const exports = new Exports(host.linkable ?? false, () => this.section.exportable);
    this.masthead = new Masthead(this.results(), () => [...this.section.shortcuts, ...this.shortcuts()], exports);
    this.build();
    this.listen();
    this.show(this.store.state);
    void this.explainAddress();
  }

  dispose(): void {
    this.page.dispose([this.masthead, ...this.sections]);
    this.root.classList.remove("comparison");
  }

  private get sections(): Section[] {
    return [this.maps, this.flows].filter((section) => section !== null);
  }

  /** The section that is shown. */
  private get section(): Section {
    return (this.store.state.view === FLOW ? this.flows : this.maps) ?? this.sections[0]!;
  }

  /** What the head of the page shows: the analyses, or else the texts that are explained. */
  private results(): Heading[] {
    if (this.panes.length > 0) {
      return this.panes.map(({ analysis }) => ({
        facts: analysis.facts,
        tokens: countOf(analysis.keys),
        image: analysis.picture !== null,
      }));
    }
    const texts = new Map(this.explanations.map((one) => [one.text, one]));
    return [...texts.values()].slice(0, 2).map((one) => ({
      facts: one.facts,
      tokens: one.stack("decoder").tokens.token.length,
      image: one.picture !== null,
    }));
  }

  private build(): void {
    const { root } = this;
    root.classList.toggle("comparison", this.panes.length > 1);
    root.replaceChildren(this.masthead.element);
  }

  private listen(): void {
    this.store.subscribe((state) => this.changed(state));
    this.page.listen(
      () => [...this.section.shortcuts, ...this.shortcuts()],
      () => this.show(this.store.state),
      (fragment) => this.fitted(parseState(fragment, this.initial)),
    );
  }

  private fitted(state: State): State {
    const view = this.views.includes(state.view) ? state.view : (this.views[0] ?? "");
    let fitted: State = { ...state, view };
    const [pane] = this.panes;
    if (pane) fitted = fitState(fitted, pane.lens(state).analysis);
    if (!this.targets.any) return fitted;
    fitted.target = this.targets.fitted(this.targets.numberOf(fitted.explain) ?? fitted.target);
    return view === FLOW ? fitFlow(fitted, this.targets.at(fitted).explanation) : fitted;
  }

  /** Explain something else, and show it. */
  private async explain(request: ExplainRequest): Promise<void> {
    const name = formatRequest(request);
    if (this.targets.numberOf(name) === undefined) {
      const explanation = await decodeExplanation(await this.host.explain!(request));
      if (this.page.ended) return;
      this.explanations.push(explanation);
      this.targets.answer(name, explanation);
    }
    this.store.set({ view: FLOW, ...this.targets.choose(this.targets.numberOf(name)!) });
  }

  /** Explain what the address requests; a request that fails is removed from it. */
  private async explainAddress(): Promise<void> {
    const { explain } = this.store.state;
    if (explain === "" || explain === this.pending || this.targets.numberOf(explain) !== undefined) return;
    this.pending = explain;
    const request = parseRequest(explain);
    try {
      if (!request || !this.host.explain) throw new Error("This page cannot compute explanations.");
      await this.explain(request);
    } catch {
      this.store.set({ explain: "" });
    }
    this.pending = "";
  }

  private changed(state: State): void {
    const fitted = this.withHeads(this.fitted(state));
    if (JSON.stringify(fitted) !== JSON.stringify(state)) {
      this.store.set(fitted);
      return;
    }
    this.show(state);
    void this.explainAddress();
    this.host.writeState(formatState(state, this.initial));
  }

  /** Who comes to the heads comes to a scope where they are separate. */
  private withHeads(state: State): State {
    const entered = state.view === HEADS && this.viewShown !== HEADS;
    this.viewShown = state.view;
    const analysis = this.panes[0]?.lens(state).analysis;
    if (!entered || !analysis || analysis.hasHeads(state.scope)) return state;
    return { ...state, scope: analysis.scopeNames.findLast((scope) => analysis.hasHeads(scope)) ?? state.scope };
  }

  private show(shared: State): void {
    if (this.page.ended) return;
    const begun = performance.now();
    const scene: Scene = { shared, look: this.page.look() };
    if (!this.mounted.has(this.section)) this.root.append(this.section.element);
    this.mounted.add(this.section);
    for (const section of this.mounted) section.element.hidden = section !== this.section;
    this.section.update(scene);
    this.masthead.update(shared);
    this.root.dataset.redraw = (performance.now() - begun).toFixed(1);
  }

  /** Shortcuts of both sections. */
  private shortcuts(): Shortcut[] {
    const { store } = this;
    const set = (patch: (state: State) => Partial<State>) => (): void => store.set(patch(store.state));
    return [
      {
        keys: "w",
        description: "subwords, words, sentences, blocks",
        actions: { w: set(({ units }) => ({ units: this.nextUnits(units) })) },
      },
      { keys: "?", description: "these keys", actions: { "?": () => this.masthead.toggleKeys() } },
      { keys: "t", description: "next view", actions: { t: set(({ view }) => ({ view: this.nextView(view) })) } },
    ];
  }

  private nextUnits(units: State["units"]): State["units"] {
    const { state } = this.store;
    const keys = this.panes[0]?.lens(state).analysis.keys ?? this.explanations[0]!.stack(state.part).keys;
    const kinds = kindsOf(keys);
    return kinds[(kinds.indexOf(units) + 1) % kinds.length]!;
  }

  private nextView(view: string): string {
    return this.views[(this.views.indexOf(view) + 1) % this.views.length] ?? view;
  }
}
