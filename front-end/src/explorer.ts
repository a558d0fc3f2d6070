/** The explorer itself, mounted anywhere: shared controls above, one stage per analysis below, one state for all. */
import { h } from "./draw/dom";
import type { Ink } from "./draw/paint";
import { Thumbnails } from "./draw/thumbnails";
import type { Host } from "./hosts/host";
import { Lifetime } from "./lifetime";
import { decodeAnalysis } from "./model/analysis";
import { Pane } from "./model/pane";
import type { Payload } from "./model/payload";
import { fitState, formatState, initialState, parseState, type State } from "./model/state";
import { Store } from "./model/store";
import { label } from "./model/tokens";
import { Exports } from "./panels/exports";
import { Masthead } from "./panels/masthead";
import type { Panel } from "./panels/panel";
import { Stepper } from "./panels/stepper";
import { Toolbar } from "./panels/toolbar";
import { viewFor, viewsOf } from "./panels/views";
import { act, type Shortcut } from "./shortcuts";
import { type Look, Stage } from "./stage";

const VERSION = 2;

/** Show a payload in an element, until the function that this gives is called. */
export async function mount(root: HTMLElement, payload: Payload, host: Host): Promise<() => void> {
  if (payload.version !== VERSION) {
    throw new Error(`This data has format ${payload.version}; this explorer reads ${VERSION}.`);
  }
  const analyses = await Promise.all(payload.analyses.map(decodeAnalysis));
  const first = new Pane(0, analyses[0]!, null);
  const panes = [first, ...analyses.slice(1).map((analysis, index) => new Pane(index + 1, analysis, first))];
  const explorer = new Explorer(root, panes, host);
  return () => explorer.dispose();
}

/** Say in its place why there is no explorer. */
export function failure(root: HTMLElement, error: unknown): void {
  const text = error instanceof Error ? error.message : String(error);
  const message = `This analysis cannot be shown: ${label(text).replaceAll("\u2423", " ")}`;
  root.replaceChildren(h("p", { class: "failure", role: "alert" }, message));
}

class Explorer {
  private readonly life = new Lifetime();
  private readonly store: Store;
  private readonly initial: State;
  private readonly stages: Stage[];
  private readonly stepper: Stepper;
  private readonly shortcuts: Shortcut[];
  /** What follows the shared state. */
  private readonly panels: Panel<State>[];
  private readonly darkly = window.matchMedia("(prefers-color-scheme: dark)");

  constructor(
    private readonly root: HTMLElement,
    private readonly panes: Pane[],
    private readonly host: Host,
  ) {
    this.initial = initialState(panes[0]!.analysis);
    this.store = new Store(this.fitted(parseState(host.readState(), this.initial)));
    const thumbnails = new Thumbnails(() => this.dark());
    this.stepper = new Stepper(this.store, panes, thumbnails);
    this.shortcuts = this.makeShortcuts();
    this.stages = panes.map(
      (pane) => new Stage(this.store, pane, thumbnails, (from, query, key) => this.follow(from, query, key)),
    );
    const views = (): ReturnType<Stage["current"]>[] => this.stages.map((stage) => stage.current());
    const exports = new Exports(panes, host, views, () => this.show(this.store.state));
    const analyses = panes.map(({ analysis }) => analysis);
    this.panels = [new Masthead(analyses, this.shortcuts, exports), this.stepper, new Toolbar(this.store, panes)];
    this.life.atEnd(() => thumbnails.dispose());
    this.build();
    this.listen();
    this.show(this.store.state);
  }

  dispose(): void {
    this.life.end();
    this.store.close();
    for (const panel of [...this.panels, ...this.stages]) panel.dispose();
    this.root.classList.remove("explorer", "comparison");
    this.root.replaceChildren();
  }

  private build(): void {
    const { root, stages } = this;
    root.classList.add("explorer");
    root.classList.toggle("comparison", stages.length > 1);
    root.replaceChildren();
    for (const panel of this.panels) panel.mount(root);
    const place = h("div", { class: "stages" });
    for (const stage of stages) stage.mount(place);
    root.append(place);
  }

  private listen(): void {
    this.store.subscribe((state) => this.changed(state));
    this.life.listen<KeyboardEvent>(this.root, "keydown", (event) => act(this.shortcuts, event));
    this.life.listen(this.darkly, "change", () => this.show(this.store.state));
    const unsubscribe = this.host.onState?.((fragment) =>
      this.store.set(this.fitted(parseState(fragment, this.initial))),
    );
    if (unsubscribe) this.life.atEnd(unsubscribe);
  }

  private fitted(state: State): State {
    const { analysis } = this.panes[0]!.lens(state);
    return { ...fitState(state, analysis), view: viewFor(state.view, analysis) };
  }

  private dark(): boolean {
    const { theme } = this.store.state;
    return theme === "auto" ? this.darkly.matches : theme === "dark";
  }

  private changed(state: State): void {
    const fitted = this.fitted(state);
    if (JSON.stringify(fitted) !== JSON.stringify(state)) {
      this.store.set(fitted);
      return;
    }
    this.show(state);
    this.host.writeState(formatState(state, this.initial));
  }

  private show(state: State): void {
    if (this.life.over) return;
    const begun = performance.now();
    this.root.dataset.theme = this.dark() ? "dark" : "light";
    this.host.dress?.(this.dark());
    const look: Look = { ink: this.ink(), dark: this.dark() };
    for (const stage of this.stages) stage.update({ shared: state, look });
    for (const panel of this.panels) panel.update(state);
    this.root.dataset.redraw = (performance.now() - begun).toFixed(1);
  }

  private ink(): Ink {
    const style = getComputedStyle(this.root);
    const of = (name: string): string => style.getPropertyValue(`--${name}`).trim();
    return {
      text: of("ink"),
      muted: of("muted"),
      line: of("line"),
      accent: of("accent"),
      panel: of("panel"),
      hatch: of("void"),
    };
  }

  private follow(from: Pane, query: number, key: number): void {
    const state = this.store.state;
    const [firstQuery, firstKey] = [from.toFirst(state, "queries", query), from.toFirst(state, "keys", key)];
    for (const stage of this.stages.filter(({ pane }) => pane !== from)) {
      const { pane } = stage;
      stage.followed(pane.fromFirst(state, "queries", firstQuery), pane.fromFirst(state, "keys", firstKey));
    }
  }

  private makeShortcuts(): Shortcut[] {
    const { store, stepper } = this;
    const norms: Record<State["norm"], State["norm"]> = { none: "row", row: "column", column: "none" };
    const set = (patch: (state: State) => Partial<State>) => (): void => store.set(patch(store.state));
    const layer = (by: number) => (): void => this.stages[0]!.layers.step(by);
    return [
      {
        keys: "[ and ]",
        does: "previous and next component of the chain",
        acts: { "[": () => stepper.step(-1), "]": () => stepper.step(1) },
      },
      { keys: "j and k", does: "next and previous layer", acts: { j: layer(1), k: layer(-1) } },
      { keys: "p", does: "play the chain", acts: { p: () => stepper.toggle() } },
      {
        keys: "d",
        does: "difference to the previous scope, on and off",
        acts: { d: set(({ base, scope }) => ({ base: base === "" ? this.previous(scope) : "" })) },
      },
      {
        keys: "n",
        does: "raw values, rows or columns normalised",
        acts: { n: set(({ norm }) => ({ norm: norms[norm] })) },
      },
      {
        keys: "w",
        does: "words or subwords",
        acts: { w: set(({ units }) => ({ units: units === "word" ? "token" : "word" })) },
      },
      { keys: "s", does: "special tokens on and off", acts: { s: set(({ special }) => ({ special: !special })) } },
      { keys: "t", does: "next view", acts: { t: set(({ view }) => ({ view: this.nextView(view) })) } },
      { keys: "arrows", does: "move in the map, the strip or the layers" },
      { keys: "+  \u2212  0", does: "zoom the map, and fit it" },
    ];
  }

  private nextView(view: string): string {
    const names = viewsOf(this.panes[0]!.lens(this.store.state).analysis);
    return names[(names.indexOf(view) + 1) % names.length] ?? view;
  }

  private previous(scope: string): string {
    const { scopeNames } = this.panes[0]!.lens(this.store.state).analysis;
    return scopeNames[Math.max(0, scopeNames.indexOf(scope) - 1)] ?? "";
  }
}
