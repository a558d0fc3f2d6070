/** All layers of one analysis as small multiples; the chosen one is the one in the large map. */
import { mean } from "d3-array";
import { h } from "../draw/dom";
import type { Thumbnail, Thumbnails } from "../draw/thumbnails";
import * as format from "../model/format";
import type { Pane } from "../model/pane";
import type { State } from "../model/state";
import type { Store } from "../model/store";
import { Panel } from "./panel";

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
    this.list.addEventListener("keydown", (event) => this.typed(event));
  }

  update(shared: State): void {
    const { analysis } = this.pane.lens(shared);
    if (analysis.layers.join() !== this.layers.join()) this.build(analysis.layers);
    const state = this.pane.state(shared);
    [...this.list.children].forEach((child, index) => {
      const layer = this.layers[index]!;
      const ratio = mean(analysis.ratios(state.scope, layer).filter((value) => !Number.isNaN(value)));
      child.setAttribute("aria-checked", String(layer === state.layer));
      child.setAttribute("tabindex", layer === state.layer ? "0" : "-1");
      child.querySelector<HTMLElement>(".mixing i")!.style.width = `${100 * (ratio ?? 0)}%`;
      child.setAttribute(
        "title",
        ratio === undefined ? `Layer ${layer}` : `Layer ${layer}: mean mixing ratio ${format.share(ratio)}`,
      );
    });
    this.reveal(this.layers.indexOf(state.layer));
    this.drawer.update(this.thumbnails, shared);
  }

  /** Scroll the list (and nothing else) to a layer. */
  private reveal(index: number): void {
    const child = this.list.children[index] as HTMLElement | undefined;
    if (!child) return;
    const [top, left] = [child.offsetTop - this.list.offsetTop, child.offsetLeft - this.list.offsetLeft];
    const { scrollTop, scrollLeft, clientHeight, clientWidth } = this.list;
    if (top < scrollTop || top + child.offsetHeight > scrollTop + clientHeight)
      this.list.scrollTop = top - (clientHeight - child.offsetHeight) / 2;
    if (left < scrollLeft || left + child.offsetWidth > scrollLeft + clientWidth)
      this.list.scrollLeft = left - (clientWidth - child.offsetWidth) / 2;
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

  private typed(event: KeyboardEvent): void {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const next = this.layers.indexOf(this.pane.state(this.store.state).layer) + by;
    this.step(by);
    (this.list.children[next] as HTMLElement | undefined)?.focus();
  }
}
