/** All layers of one analysis as small multiples; the chosen one is the one in the large map. */
import { mean } from "d3-array";
import { h } from "../draw/dom";
import type { Thumbnail, Thumbnails } from "../draw/thumbnails";
import * as format from "../model/format";
import type { Pane } from "../model/pane";
import type { State } from "../model/state";
import type { Store } from "../model/store";
import { Panel } from "./panel";
import { handleArrows, markChosen } from "./radiogroup";

const SIZE = 54;

export class Layers extends Panel<State> {
  readonly element: HTMLElement;
  private readonly list: HTMLElement;
  private layers: number[] = [];
  private thumbnails: Thumbnail[] = [];

  constructor(
    private readonly store: Store,
    private readonly pane: Pane,
    private readonly drawer: Thumbnails,
  ) {
    super();
    this.list = h("div", { class: "list", role: "radiogroup", "aria-label": "Layer" });
    this.element = h("section", { class: "layers" }, h("h2", {}, "Layers"), this.list);
    const current = (): number => this.layers.indexOf(pane.state(store.state).layer);
    handleArrows(this.list, current, (by) => this.step(by));
  }

  update(shared: State): void {
    const { analysis } = this.pane.lens(shared);
    if (analysis.layers.join() !== this.layers.join()) this.build(analysis.layers);
    const state = this.pane.state(shared);
    [...this.list.children].forEach((child, index) => {
      const layer = this.layers[index]!;
      const ratio = mean(analysis.ratios(state.scope, layer).filter((value) => !Number.isNaN(value)));
      child.querySelector<HTMLElement>(".mixing i")!.style.width = `${100 * (ratio ?? 0)}%`;
      child.setAttribute(
        "title",
        ratio === undefined ? `Layer ${layer}` : `Layer ${layer}: mean mixing ratio ${format.share(ratio)}`,
      );
    });
    markChosen(this.list, this.layers.indexOf(state.layer));
    this.drawer.update(this.thumbnails, shared);
  }

  step(by: number): void {
    const current = this.pane.state(this.store.state).layer;
    const next = this.layers[this.layers.indexOf(current) + by];
    if (next !== undefined) this.store.set({ layer: next });
  }

  private build(layers: number[]): void {
    this.layers = layers;
    this.thumbnails = [];
    const items = layers.map((layer) => {
      const canvas = h("canvas", { class: "thumbnail", width: SIZE, height: SIZE, "aria-hidden": "true" });
      this.thumbnails.push({ canvas, pane: this.pane, size: SIZE, of: (state) => ({ ...state, layer }) });
      return h(
        "button",
        {
          type: "button",
          class: "layer",
          role: "radio",
          "aria-label": `Layer ${layer}`,
          "data-layer": layer,
          click: () => this.store.set({ layer }),
        },
        h("span", { class: "number" }, String(layer)),
        h("span", { class: "picture" }, canvas, h("span", { class: "mixing", "aria-hidden": "true" }, h("i"))),
      );
    });
    this.list.replaceChildren(...items);
  }
}
