/** All heads of a layer as small maps, those that carry most first, and what the heads of all layers carry. */
import { sum } from "d3-array";
import { palette, shade } from "../draw/colour";
import { h, sized } from "../draw/dom";
import { cellsOf } from "../draw/mapmarks";
import { type Mark, paintMarks } from "../draw/marks";
import { greyedOf, type View } from "../draw/view";
import * as format from "../model/format";
import { type Context, type MainPanel, Panel } from "./panel";

/** Of a small map, in pixels, without its frame and name. */
const SIZE = { least: 116, most: 320, around: 22, below: 46 };
/** Pixels of the window that everything above and below the maps takes. */
const CHROME = 420;
const SMALLEST_HEIGHT = 420;
const CELL = 16;
/** Longer texts would take too long to go through all heads of all layers. */
const MOST_TOKENS = 160;

export class HeadsPanel extends Panel implements MainPanel {
  readonly element: HTMLElement;
  private readonly grid = h("div", { class: "heads" });
  private readonly note = h("p", { class: "note" });
  private readonly all = h("canvas", { class: "mixing-grid", role: "img" });
  private readonly about = h(
    "p",
    { class: "note" },
    "contribution of every head (columns) in every layer (rows), as a share of its layer",
  );
  private readonly carried = new Map<string, number[]>();
  private view: View | null = null;
  private drawnWidth = 0;

  constructor(private readonly context: Context) {
    super();
    this.element = h("div", { class: "heads-view" }, this.note, this.grid, this.about, this.all);
    this.all.addEventListener("click", (event) => this.clicked(event));
    this.lifetime.observeSize(this.element, () => {
      if (this.view && Math.abs(this.element.clientWidth - this.drawnWidth) > 1) this.update(this.view);
    });
  }

  update(view: View): void {
    this.view = view;
    const { lens, state } = view;
    const { analysis } = lens;
    const separate = analysis.hasHeads(state.scope);
    for (const element of [this.grid, this.about, this.all]) element.hidden = !separate;
    this.note.replaceChildren(...(separate ? [this.description(view)] : this.elsewhere(view)));
    if (!separate) return;
    const shares = this.shares(view, state.layer);
    const order = [...shares.keys()].sort((a, b) => shares[b]! - shares[a]!);
    const size = this.sizeFor(order.length);
    this.grid.style.setProperty("--head", `${size}px`);
    this.grid.replaceChildren(...order.map((index) => this.head(view, index, shares[index]!, size)));
    this.drawAll(view);
  }

  /** The largest size at which all heads are seen at once, within bounds. */
  private sizeFor(heads: number): number {
    this.drawnWidth = this.element.clientWidth;
    const height = Math.max(SMALLEST_HEIGHT, window.innerHeight - CHROME);
    const sizes = Array.from({ length: heads }, (_, index) => {
      const [columns, rows] = [index + 1, Math.ceil(heads / (index + 1))];
      return Math.floor(Math.min(this.drawnWidth / columns - SIZE.around, height / rows - SIZE.below));
    });
    return Math.min(SIZE.most, Math.max(SIZE.least, ...sizes));
  }

  private description({ state }: View): string {
    return `Heads of layer ${state.layer} at ${state.scope}, largest contribution first. Click one to show it in the large map.`;
  }

  /** Buttons for the scopes with separate heads. */
  private elsewhere({ lens, state }: View): Node[] {
    const scopes = lens.analysis.scopeNames.filter((name) => lens.analysis.hasHeads(name));
    if (scopes.length === 0) {
      const ways =
        "normscope explore \u2026 --heads, analyze(\u2026, heads=True), or \u201csingle heads\u201d in the web app";
      return [document.createTextNode(`The maps of single heads were not computed. To get them: ${ways}.`)];
    }
    const buttons = scopes.map((scope) =>
      h("button", { type: "button", class: "quiet", click: () => this.context.store.set({ scope }) }, scope),
    );
    return [
      document.createTextNode(`At ${state.scope} the heads are already mixed. Separate heads are available at `),
      ...buttons,
    ];
  }

  /** For every head the part of all that the heads of a layer carry (by absolute value). */
  private shares({ lens, state }: View, layer: number): number[] {
    const { analysis } = lens;
    const name = `${analysis.method}/${state.part}/${state.scope}/${layer}`;
    let shares = this.carried.get(name);
    if (!shares) {
      const sizes = (analysis.heads?.numbers ?? []).map((head) =>
        sum(analysis.matrix(state.scope, layer, head), (value) => Math.abs(value) || 0),
      );
      const whole = sum(sizes) || 1;
      shares = sizes.map((size) => size / whole);
      this.carried.set(name, shares);
    }
    return shares;
  }

  private head(view: View, index: number, share: number, size: number): HTMLElement {
    const { lens, dark } = view;
    const head = lens.analysis.heads!.numbers[index]!;
    const state = { ...view.state, head };
    const canvas = h("canvas", { class: "thumbnail", "aria-hidden": "true" });
    const context = sized(canvas, size, size);
    const matrix = lens.matrix(state);
    const colours = palette(state.colours, lens.colouring(state), { diverging: lens.signed(state), dark });
    const scale = size / Math.max(matrix.rows, matrix.columns);
    const bitmap = cellsOf(matrix, colours, greyedOf(state, lens, dark));
    const box = { x: 0, y: 0, width: matrix.columns * scale, height: matrix.rows * scale };
    paintMarks(context, [{ kind: "bitmap", bitmap, ...box }]);
    return h(
      "button",
      {
        type: "button",
        class: view.state.head === head ? "head chosen" : "head",
        title: `Head ${head}: ${format.share(share)} of the contribution of all heads of this layer`,
        click: () => this.context.store.set({ head, view: "map" }),
      },
      canvas,
      h("span", {}, `head ${head} `),
      h("span", { class: "hint" }, format.share(share)),
    );
  }

  private drawAll(view: View): void {
    const { layers, heads, keys } = view.lens.analysis;
    const hidden = keys.token.length > MOST_TOKENS || layers.length < 2;
    this.all.hidden = hidden;
    this.about.hidden = hidden;
    if (hidden || !heads) return;
    const rows = layers.map((layer) => this.shares(view, layer));
    const most = Math.max(...rows.flat());
    const colouring = { limit: most, most, scale: { kind: "linear" as const } };
    const colours = palette(view.state.colours, colouring, { diverging: false, dark: view.dark });
    const context = sized(this.all, CELL * heads.numbers.length, CELL * layers.length);
    const cells = rows.flatMap((shares, row) =>
      shares.map((share, column): Mark => {
        const fill = colours.css[shade(share, colours)]!;
        return { kind: "rect", x: column * CELL, y: row * CELL, width: CELL - 1, height: CELL - 1, fill };
      }),
    );
    const y = layers.indexOf(view.state.layer) * CELL + 1;
    const frame = { x: 1, y, width: CELL * heads.numbers.length - 3, height: CELL - 3 };
    paintMarks(context, [...cells, { kind: "rect", ...frame, stroke: view.ink.accent, lineWidth: 2 }]);
    this.all.setAttribute(
      "aria-label",
      `Shares of ${heads.numbers.length} heads in ${layers.length} layers, up to ${format.share(most)}`,
    );
  }

  private clicked(event: MouseEvent): void {
    if (!this.view) return;
    const { layers, heads } = this.view.lens.analysis;
    const layer = layers[Math.floor(event.offsetY / CELL)];
    const head = heads?.numbers[Math.floor(event.offsetX / CELL)];
    if (layer !== undefined && head !== undefined) this.context.store.set({ layer, head });
  }
}
