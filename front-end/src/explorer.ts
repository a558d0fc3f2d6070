/** The explorer itself, mounted anywhere: shared controls above, one stage per analysis below, one state for all. */

import { popover } from "./draw/controls";
import { bdi, h } from "./draw/dom";
import type { Ink } from "./draw/paint";
import { Thumbnails } from "./draw/thumbnails";
import { decodeAnalysis } from "./model/analysis";
import { Pane } from "./model/pane";
import type { Host, Payload } from "./model/payload";
import { fitState, formatState, initialState, parseState, type State } from "./model/state";
import { Store } from "./model/store";
import { label } from "./model/tokens";
import { Exports } from "./panels/exports";
import { Stepper } from "./panels/stepper";
import { Toolbar } from "./panels/toolbar";
import { type Look, Stage } from "./stage";

const VERSION = 1;

const KEYS: [string, string][] = [
  ["[ and ]", "previous and next component of the chain"],
  ["j and k", "next and previous layer"],
  ["p", "play the chain"],
  ["d", "difference to the previous scope, on and off"],
  ["n", "raw values, rows or columns normalised"],
  ["w", "words or subwords"],
  ["s", "special tokens on and off"],
  ["t", "map or table"],
  ["arrows", "move in the map, the strip or the layers"],
  ["+  \u2212  0", "zoom the map, and fit it"],
];

export class Explorer {
  private readonly store: Store;
  private readonly initial: State;
  private readonly panes: Pane[];
  private readonly stages: Stage[];
  private readonly stepper: Stepper;
  private readonly toolbar: Toolbar;
  private readonly exports: Exports;
  private readonly darkly = window.matchMedia("(prefers-color-scheme: dark)");

  static async mount(root: HTMLElement, payload: Payload, host: Host): Promise<Explorer> {
    if (payload.version !== VERSION)
      throw new Error(`This data has format ${payload.version}; this explorer reads ${VERSION}.`);
    const analyses = await Promise.all(payload.analyses.map(decodeAnalysis));
    const first = new Pane(0, analyses[0]!, null);
    const panes = [first, ...analyses.slice(1).map((analysis, index) => new Pane(index + 1, analysis, first))];
    return new Explorer(root, panes, host);
  }

  private constructor(
    private readonly root: HTMLElement,
    panes: Pane[],
    private readonly host: Host,
  ) {
    this.panes = panes;
    this.initial = initialState(panes[0]!.analysis);
    this.store = new Store(this.fitted(parseState(host.readState(), this.initial)));
    const thumbnails = new Thumbnails(() => this.dark());
    this.stepper = new Stepper(this.store, panes, thumbnails);
    this.toolbar = new Toolbar(this.store, panes);
    this.stages = panes.map(
      (pane) => new Stage(this.store, pane, thumbnails, (from, query, key) => this.follow(from, query, key)),
    );
    this.exports = new Exports(
      panes,
      host,
      () => this.stages.map((stage) => stage.current()),
      () => this.show(this.store.state),
    );
    root.classList.add("explorer");
    root.classList.toggle("comparison", panes.length > 1);
    root.replaceChildren(
      this.header(),
      this.stepper.element,
      this.toolbar.element,
      h("div", { class: "stages" }, ...this.stages.map((stage) => stage.element)),
    );
    root.addEventListener("keydown", (event) => this.typed(event));
    this.store.subscribe((state) => this.changed(state));
    host.onState?.((fragment) => this.store.set(this.fitted(parseState(fragment, this.initial))));
    this.darkly.addEventListener("change", () => this.show(this.store.state));
    this.show(this.store.state);
  }

  private fitted(state: State): State {
    return fitState(state, this.panes[0]!.lens(state).analysis);
  }

  private header(): HTMLElement {
    const texts = this.panes.map(({ analysis }) => {
      const parts = [String(analysis.facts.source_text ?? ""), analysis.text]
        .filter((text) => text.trim() !== "")
        .map((text) => text.replace(/\s+/gu, " "));
      const shown =
        parts.length > 0
          ? parts.flatMap((text, index) => [index > 0 ? " \u2192 " : "", bdi(text)])
          : [`${analysis.keys.token.length} tokens`];
      return h("p", { class: "text", title: parts.join(" \u2192 ") }, ...shown);
    });
    const help = popover(
      "Keys",
      "help",
      h("dl", {}, ...KEYS.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    );
    return h(
      "header",
      { class: "masthead" },
      h("span", { class: "wordmark" }, "normscope"),
      h("div", { class: "texts" }, ...texts),
      help,
      this.exports.element,
    );
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
    const begun = performance.now();
    this.root.dataset.theme = this.dark() ? "dark" : "light";
    this.host.dress?.(this.dark());
    const look: Look = { ink: this.ink(), dark: this.dark() };
    for (const stage of this.stages) stage.update(state, look);
    this.stepper.update(state);
    this.toolbar.update(state);
    this.exports.update();
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
    for (const stage of this.stages) {
      if (stage.pane !== from)
        stage.followed(
          stage.pane.fromFirst(state, "queries", firstQuery),
          stage.pane.fromFirst(state, "keys", firstKey),
        );
    }
  }

  private typed(event: KeyboardEvent): void {
    const target = event.composedPath()[0] as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || /^(SELECT|TEXTAREA)$/u.test(target.tagName)) return;
    if (target instanceof HTMLInputElement && target.type === "text") return;
    const { state } = this.store;
    const norms: Record<State["norm"], State["norm"]> = { none: "row", row: "column", column: "none" };
    const acts: Record<string, () => void> = {
      "[": () => this.stepper.step(-1),
      "]": () => this.stepper.step(1),
      j: () => this.stages[0]!.layers.step(1),
      k: () => this.stages[0]!.layers.step(-1),
      p: () => this.stepper.toggle(),
      d: () => this.store.set({ base: state.base === "" ? this.previous(state.scope) : "" }),
      n: () => this.store.set({ norm: norms[state.norm] }),
      w: () => this.store.set({ units: state.units === "word" ? "token" : "word" }),
      s: () => this.store.set({ special: !state.special }),
      t: () => this.store.set({ view: state.view === "map" ? "table" : "map" }),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  private previous(scope: string): string {
    const { scopes } = this.panes[0]!.lens(this.store.state).analysis;
    return scopes[Math.max(0, scopes.indexOf(scope) - 1)] ?? "";
  }
}

export function failure(root: HTMLElement, error: unknown): void {
  const text = error instanceof Error ? error.message : String(error);
  root.replaceChildren(
    h(
      "p",
      { class: "failure", role: "alert" },
      `This analysis cannot be shown: ${label(text).replaceAll("\u2423", " ")}`,
    ),
  );
}
