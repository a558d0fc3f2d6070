/** The maps of one analysis, or of two side by side: the chain and the toolbar above, one stage for each below. */
import type { Choice } from "./draw/controls";
import { h } from "./draw/dom";
import { Thumbnails } from "./draw/thumbnails";
import type { View } from "./draw/view";
import { mapFigure, sideBySide } from "./exports/figure";
import { csvOf, isExact, jsonOf } from "./exports/records";
import type { Host } from "./hosts/host";
import type { Pane } from "./model/pane";
import type { State } from "./model/state";
import type { Store } from "./model/store";
import { precisionShown } from "./panels/facts";
import { Panel } from "./panels/panel";
import { Stepper } from "./panels/stepper";
import { Toolbar } from "./panels/toolbar";
import type { Exportable, Scene, Section } from "./section";
import type { Shortcut } from "./shortcuts";
import { Stage } from "./stage";

const ARROWS = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"];
const OWN: Record<State["own"], State["own"]> = { auto: "out", shown: "grey", grey: "out", out: "shown" };

export class Maps extends Panel<Scene> implements Section {
  readonly element: HTMLElement;
  readonly shortcuts: Shortcut[];
  readonly exportable: Exportable;
  private readonly stages: Stage[];
  private readonly stepper: Stepper;
  private readonly toolbar: Toolbar;
  private scene: Scene | null = null;

  constructor(
    private readonly store: Store,
    private readonly panes: Pane[],
    private readonly host: Host,
    views: Choice[],
  ) {
    super();
    const thumbnails = this.own(new Thumbnails(() => this.scene?.look.dark ?? false));
    this.stepper = this.own(new Stepper(store, panes, thumbnails));
    this.toolbar = this.own(new Toolbar(store, panes, views));
    this.stages = panes.map((pane) =>
      this.own(new Stage(store, pane, panes, thumbnails, (from, query, key) => this.follow(from, query, key))),
    );
    this.element = h("div", { class: "maps" }, this.stepper, this.toolbar, h("div", { class: "stages" }, this.stages));
    this.shortcuts = this.makeShortcuts();
    this.exportable = this.makeExportable();
  }

  update(scene: Scene): void {
    this.scene = scene;
    // What is above the stages first: maps are as high as it leaves room for.
    this.stepper.update(scene.shared);
    this.toolbar.update(scene.shared);
    for (const stage of this.stages) stage.update(scene);
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
        description: "previous and next component of the chain",
        actions: { "[": () => stepper.step(-1), "]": () => stepper.step(1) },
      },
      { keys: "j and k", description: "next and previous layer", actions: { j: layer(1), k: layer(-1) } },
      { keys: "p", description: "play the chain", actions: { p: () => stepper.toggle() } },
      {
        keys: "d",
        description: "difference to the previous scope, on and off",
        actions: { d: set(({ base, scope }) => ({ base: base === "" ? this.previous(scope) : "" })) },
      },
      {
        keys: "n",
        description: "raw values, rows or columns normalised",
        actions: { n: set(({ norm }) => ({ norm: norms[norm] })) },
      },
      {
        keys: "s",
        description: "special tokens on and off",
        actions: { s: set(({ special }) => ({ special: !special })) },
      },
      {
        keys: "o",
        description: "own tokens shown, grey, or left out",
        actions: { o: set((state) => ({ own: OWN[this.panes[0]!.state(state).own] })) },
      },
      {
        keys: "/",
        description: "find a token, Enter goes to the next",
        actions: { "/": () => this.stages[0]!.find() },
      },
      {
        keys: "m and M",
        description: "next and previous of the strongest cells",
        actions: { m: () => this.stages[0]!.jump(1), M: () => this.stages[0]!.jump(-1) },
      },
      { keys: "arrows", description: "move in the map, the strip or the layers", actions: this.keysOfTheMap(ARROWS) },
      {
        keys: "+  \u2212  0",
        description: "zoom the map, and fit it",
        actions: this.keysOfTheMap(["+", "=", "-", "0"]),
      },
      { keys: "Ctrl wheel", description: "zoom at the pointer; drag or wheel to move, double-click to go in" },
    ];
  }

  private keysOfTheMap(keys: readonly string[]): Record<string, () => void> {
    return Object.fromEntries(keys.map((key) => [key, (): void => this.stages[0]!.press(key)]));
  }

  private previous(scope: string): string {
    const { scopeNames } = this.panes[0]!.lens(this.store.state).analysis;
    return scopeNames[Math.max(0, scopeNames.indexOf(scope) - 1)] ?? "";
  }

  private views(): View[] {
    return this.stages.map((stage) => stage.current());
  }

  private makeExportable(): Exportable {
    return {
      name: () => {
        const { state } = this.views()[0]!;
        const base = state.base && `minus-${state.base}`;
        return ["normscope", `layer${state.layer}`, state.scope, base].filter(Boolean).join("-");
      },
      note: () =>
        this.host.exact !== undefined || this.views().every(isExact)
          ? "Data is exported as float32."
          : `Data is exported as displayed. ${this.precision()} Write the page with full precision to export float32.`,
      figure: () => sideBySide(this.views().map(mapFigure)),
      csv: async () => csvOf(await this.exact()),
      json: async () => jsonOf(await this.exact()),
    };
  }

  private precision(): string {
    return precisionShown(Math.max(...this.views().map(({ lens }) => lens.analysis.precision)));
  }

  /** The views, once the values they show are there at full precision (if the host has them). */
  private async exact(): Promise<View[]> {
    const { exact } = this.host;
    if (!exact) return this.views();
    for (const [index, view] of this.views().entries()) {
      const { state, lens } = view;
      for (const scope of state.base === "" ? [state.scope] : [state.scope, state.base]) {
        const head = lens.analysis.hasHeads(scope) ? state.head : 0;
        if (lens.analysis.isExact(scope, state.layer, head)) continue;
        const { analysis } = this.panes[index]!;
        const encoder = analysis.encoder === lens.analysis;
        // Only maps of the method itself can be requested.
        if (!encoder && analysis !== lens.analysis) continue;
        const request = { analysis: index, encoder, scope, layer: state.layer, head };
        lens.analysis.setExact(scope, state.layer, head, await exact.call(this.host, request));
      }
      lens.forget();
    }
    if (this.scene && !this.lifetime.ended) this.update(this.scene);
    return this.views();
  }
}
