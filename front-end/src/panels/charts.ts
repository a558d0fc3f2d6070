/** Two small charts: one cell through the chain of components, and mixing ratios over the layers. */

import { max, mean } from "d3-array";
import { axisBottom, axisLeft } from "d3-axis";
import { scaleLinear, scalePoint } from "d3-scale";
import { select } from "d3-selection";
import { palette, shade } from "../draw/colour";
import { h, s, sized } from "../draw/dom";
import { tickFormat } from "../draw/legend";
import { named, type PanelEvents, type View } from "../draw/view";
import * as format from "../model/format";
import { stepsOf } from "../model/scopes";

const MARGIN = { top: 10, right: 12, bottom: 22, left: 38 };

interface Line {
  name: string;
  points: [string, number][];
}

/** Lines over a few named places, with axes and the last value written at their end. */
function lineChart(
  svg: SVGSVGElement,
  width: number,
  height: number,
  names: string[],
  lines: Line[],
  options: { most?: number; tick: (value: number) => string; chosen: string; short: (name: string) => string },
): void {
  const x = scalePoint(names, [MARGIN.left, width - MARGIN.right]).padding(0.2);
  const most =
    options.most ??
    max(lines.flatMap((line) => line.points.map(([, value]) => value)).filter((value) => !Number.isNaN(value))) ??
    1;
  const y = scaleLinear([0, most || 1], [height - MARGIN.bottom, MARGIN.top]);
  svg.setAttribute("width", String(width));
  svg.setAttribute("height", String(height));
  svg.replaceChildren();
  const step = Math.ceil(names.length / 14);
  const shown = names.filter((_, index) => index % step === 0);
  const root = select(svg);
  root
    .append("g")
    .attr("class", "grid")
    .attr("transform", `translate(${MARGIN.left},0)`)
    .call(
      axisLeft(y)
        .ticks(3)
        .tickSize(-(width - MARGIN.left - MARGIN.right))
        .tickPadding(6)
        .tickFormat((value) => options.tick(Number(value))),
    );
  root
    .append("g")
    .attr("transform", `translate(0,${height - MARGIN.bottom})`)
    .call(
      axisBottom(x)
        .tickValues(shown)
        .tickSize(0)
        .tickPadding(8)
        .tickFormat((name) => options.short(name)),
    );
  root.selectAll(".domain").remove();
  const chosen = x(options.chosen);
  if (chosen !== undefined)
    svg.append(s("line", { class: "now", x1: chosen, x2: chosen, y1: MARGIN.top, y2: height - MARGIN.bottom }));
  for (const line of lines) {
    const points = line.points
      .filter(([, value]) => !Number.isNaN(value))
      .map(([name, value]) => [x(name)!, y(value)] as const);
    svg.append(s("polyline", { class: line.name, points: points.map((point) => point.join()).join(" ") }));
    for (const [cx, cy] of points)
      svg.append(s("circle", { class: line.name, cx, cy, r: points.length > 16 ? 1.8 : 2.8 }));
  }
}

/** One cell at every scope of the chosen layer. */
export class ChainChart {
  readonly element: HTMLElement;
  private readonly svg = s("svg", { role: "img" });
  private readonly title = h("h2");

  constructor() {
    this.element = h("section", { class: "card" }, h("header", {}, this.title), this.svg);
  }

  update(view: View): void {
    const { state, lens, focus, queries, keys } = view;
    const column = focus.column >= 0 ? focus.column : largestKey(view);
    const scopes = lens.analysis.scopes;
    const points = scopes.map((scope): [string, number] => {
      const matrix = lens.matrix({ ...state, scope, base: "" });
      return [scope, matrix.values[focus.row * matrix.columns + column] ?? Number.NaN];
    });
    this.title.replaceChildren(
      named(queries.labels[focus.row]),
      " \u2190 ",
      named(keys.labels[column]),
      " through the chain",
    );
    const titles = new Map(stepsOf(scopes).map(({ scope, title }) => [scope, abbreviated(title, scopes.length > 8)]));
    const most = max(points, ([, value]) => value) ?? 1;
    lineChart(this.svg, Math.max(240, this.element.clientWidth - 28), 128, scopes, [{ name: "cell", points }], {
      tick: tickFormat(state.norm, most),
      chosen: state.scope,
      short: (scope) => titles.get(scope) ?? scope,
    });
    this.svg.setAttribute(
      "aria-label",
      `Through the chain: ${points.map(([scope, value]) => `${scope} ${format.cell(value, state.norm, false)}`).join(", ")}`,
    );
  }
}

const SHORT: [string, string][] = [
  ["cross weights", "cW"],
  ["weights", "W"],
  ["feed-forward", "FF"],
  ["residual", "res"],
  ["norm", "LN"],
  ["cross-attention", "cross"],
  ["\u00d7 values", "attn"],
];

/** A step's title in a few letters; in a long chain even without its plus. */
function abbreviated(title: string, tight: boolean): string {
  const short = SHORT.reduce((text, [long, brief]) => text.replace(long, brief), title);
  return tight ? short.replace("+ ", "") : short;
}

function largestKey({ matrix, focus }: View): number {
  let best = 0;
  for (let column = 0; column < matrix.columns; column++) {
    const value = Math.abs(matrix.values[focus.row * matrix.columns + column]!);
    if (
      value > Math.abs(matrix.values[focus.row * matrix.columns + best]!) ||
      Number.isNaN(matrix.values[focus.row * matrix.columns + best]!)
    )
      best = column;
  }
  return best;
}

/** Mixing ratio of every query at every layer, and of the chosen one (and the mean) as lines. */
export class MixingChart {
  readonly element: HTMLElement;
  private readonly svg = s("svg", { role: "img" });
  private readonly grid = h("canvas", { class: "mixing-grid" });
  private readonly title = h("h2", {}, "Mixing ratio");
  private view: View | null = null;

  constructor(private readonly events: PanelEvents & { layer(layer: number): void }) {
    this.element = h(
      "section",
      { class: "card mixing-card" },
      h("header", {}, this.title, h("span", { class: "hint" }, "share that came from other tokens")),
      this.svg,
      h(
        "p",
        { class: "key-line", "aria-hidden": "true" },
        h("i", { class: "cell" }),
        "this token",
        h("i", { class: "mean" }),
        "mean",
      ),
      h("p", { class: "note" }, "every token (across) and layer (down)"),
      this.grid,
    );
    this.grid.addEventListener("click", (event) => this.clicked(event));
  }

  update(view: View): void {
    this.view = view;
    const { state, lens, focus, queries } = view;
    const { layers } = lens.analysis;
    const ratios = layers.map((layer) => lens.analysis.ratios(state.scope, layer));
    this.element.hidden =
      (ratios[0]?.length ?? 0) === 0 || ratios.every((row) => row.every((value) => Number.isNaN(value)));
    if (this.element.hidden) return;
    const units = ratios.map((row) =>
      queries.members.map((members) => mean(members, (token) => row[token]!) ?? Number.NaN),
    );
    const names = layers.map(String);
    const own = names.map((name, index): [string, number] => [name, units[index]![focus.row] ?? Number.NaN]);
    const all = names.map((name, index): [string, number] => [
      name,
      mean(units[index]!.filter((value) => !Number.isNaN(value))) ?? Number.NaN,
    ]);
    this.title.replaceChildren("Mixing ratio of ", named(queries.labels[focus.row]));
    lineChart(
      this.svg,
      Math.max(240, this.element.clientWidth - 28),
      118,
      names,
      [
        { name: "mean", points: all },
        { name: "cell", points: own },
      ],
      {
        most: 1,
        tick: tickFormat("row", 1),
        chosen: String(state.layer),
        short: (name) => name,
      },
    );
    this.svg.setAttribute(
      "aria-label",
      `Mixing ratio by layer: ${own.map(([name, value]) => `${name}: ${format.share(value)}`).join(", ")}`,
    );
    this.drawGrid(view, units);
  }

  private drawGrid(view: View, units: number[][]): void {
    const width = Math.max(240, this.element.clientWidth - 28);
    const cellHeight = Math.max(4, Math.min(12, Math.floor(120 / units.length)));
    const context = sized(this.grid, width, cellHeight * units.length);
    const colours = palette({ ...view.state, base: "", scale: "linear" }, 1, view.dark);
    const cellWidth = width / Math.max(1, view.queries.labels.length);
    const gap = cellWidth > 5 ? 1 : 0;
    units.forEach((row, index) => {
      row.forEach((value, at) => {
        if (Number.isNaN(value)) return;
        context.fillStyle = colours.css[shade(value, colours)]!;
        context.fillRect(at * cellWidth, index * cellHeight, cellWidth - gap, cellHeight - (gap && 1));
      });
    });
    context.strokeStyle = view.ink.accent;
    context.lineWidth = 1.5;
    const layer = view.lens.analysis.layers.indexOf(view.state.layer);
    context.strokeRect(view.focus.row * cellWidth - 0.5, layer * cellHeight - 0.5, Math.max(3, cellWidth), cellHeight);
  }

  private clicked(event: MouseEvent): void {
    if (!this.view) return;
    const { queries, lens } = this.view;
    const row = Math.floor((event.offsetX / this.grid.clientWidth) * queries.labels.length);
    const layer =
      lens.analysis.layers[Math.floor((event.offsetY / this.grid.clientHeight) * lens.analysis.layers.length)];
    this.events.choose({ row, column: -1 });
    if (layer !== undefined) this.events.layer(layer);
  }
}
