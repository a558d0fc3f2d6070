/** Mixing ratio of every query at every layer, and of the chosen one (and the mean) as lines. */
import { mean } from "d3-array";
import { palette, shade } from "../draw/colour";
import { h, s, sized } from "../draw/dom";
import { tickFormat } from "../draw/legend";
import { lineChartMarks } from "../draw/linechart";
import { type Mark, paintMarks, svgOf } from "../draw/marks";
import { named, type View } from "../draw/view";
import * as format from "../model/format";
import { type Context, Panel } from "./panel";

const HEIGHT = 118;
const WHOLE = { limit: 1, most: 1, scale: { kind: "linear" as const } };

export class MixingChart extends Panel {
  readonly element: HTMLElement;
  private readonly svg = s("svg", { role: "img", height: HEIGHT });
  private readonly grid = h("canvas", { class: "mixing-grid" });
  private readonly title = h("h2", {}, "Mixing ratio");
  private view: View | null = null;

  constructor(private readonly context: Context) {
    super();
    const [own, all] = [h("i", { class: "cell" }), h("i", { class: "mean" })];
    this.element = h(
      "section",
      { class: "card mixing-card" },
      h("header", {}, this.title, h("span", { class: "hint" }, "share that came from other tokens")),
      this.svg,
      h("p", { class: "key-line", "aria-hidden": "true" }, own, "this token", all, "mean"),
      h("p", { class: "note" }, "all tokens (columns) and layers (rows)"),
      this.grid,
    );
    this.grid.addEventListener("click", (event) => this.clicked(event));
  }

  private get width(): number {
    return Math.max(240, this.element.clientWidth - 28);
  }

  update(view: View): void {
    this.view = view;
    const { state, lens, queries } = view;
    const ratios = lens.analysis.layers.map((layer) => lens.analysis.ratios(state.scope, layer));
    this.element.hidden = ratios.every((row) => row.every((value) => Number.isNaN(value)));
    if (this.element.hidden) return;
    const units = ratios.map((row) =>
      queries.members.map((members) => mean(members, (token) => row[token]!) ?? Number.NaN),
    );
    this.drawOwn(view, units);
    this.drawGrid(view, units);
  }

  private drawOwn({ state, lens, focus, queries, ink }: View, units: number[][]): void {
    const names = lens.analysis.layers.map(String);
    const own = names.map((name, index): [string, number] => [name, units[index]![focus.row] ?? Number.NaN]);
    const all = names.map((name, index): [string, number] => [name, mean(units[index]!) ?? Number.NaN]);
    this.title.replaceChildren("Mixing ratio of ", named(queries.shown[focus.row]));
    const marks = lineChartMarks({
      width: this.width,
      height: HEIGHT,
      names,
      lines: [
        { main: false, points: all },
        { main: true, points: own },
      ],
      most: 1,
      tick: tickFormat("row", 1),
      short: (name) => name,
      current: String(state.layer),
      ink,
    });
    this.svg.setAttribute("width", String(this.width));
    this.svg.replaceChildren(...svgOf(marks));
    const texts = own.map(([name, value]) => `${name}: ${format.share(value)}`);
    this.svg.setAttribute("aria-label", `Mixing ratio by layer: ${texts.join(", ")}`);
  }

  private drawGrid(view: View, units: number[][]): void {
    const { width } = this;
    const cellHeight = Math.max(4, Math.min(12, Math.floor(120 / units.length)));
    const context = sized(this.grid, width, cellHeight * units.length);
    const shades = { diverging: false, dark: view.dark };
    const colours = palette(view.state.colours, WHOLE, shades);
    const cellWidth = width / Math.max(1, view.queries.shown.length);
    const gap = cellWidth > 5 ? 1 : 0;
    const size = { width: cellWidth - gap, height: cellHeight - gap };
    const cells = units.flatMap((row, index) =>
      row.flatMap((value, column): Mark[] => {
        if (Number.isNaN(value)) return [];
        const fill = colours.css[shade(value, colours)]!;
        return [{ kind: "rect", x: column * cellWidth, y: index * cellHeight, ...size, fill }];
      }),
    );
    const layer = view.lens.analysis.layers.indexOf(view.state.layer);
    const frame = {
      x: view.focus.row * cellWidth - 0.5,
      y: layer * cellHeight - 0.5,
      width: Math.max(3, cellWidth),
      height: cellHeight,
    };
    paintMarks(context, [...cells, { kind: "rect", ...frame, stroke: view.ink.accent, lineWidth: 1.5 }]);
  }

  private clicked(event: MouseEvent): void {
    if (!this.view) return;
    const { queries, lens } = this.view;
    const { layers } = lens.analysis;
    const row = Math.floor((event.offsetX / this.grid.clientWidth) * queries.shown.length);
    const layer = layers[Math.floor((event.offsetY / this.grid.clientHeight) * layers.length)];
    this.context.choose({ row, column: -1 });
    if (layer !== undefined) this.context.store.set({ layer });
  }
}
