/** Two analyses of one text against each other, cell by cell: where two methods (or two models) agree, and where not. */
import { scalePow } from "d3-scale";
import { chromeOf, h, sized } from "../draw/dom";
import { type Mark, paintMarks } from "../draw/marks";
import type { View } from "../draw/view";
import * as format from "../model/format";
import { pearson, spearman } from "../model/statistics";
import { label } from "../model/tokens";
import { alignedValues, namesOf } from "./aligned";
import { type Context, type MainPanel, Panel } from "./panel";

const MARGIN = { left: 58, right: 14, top: 14, bottom: 42 };
const SMALLEST = 260;
const MOST_POINTS = 20_000;
/** How near the pointer must be to a point. */
const REACH = 9;

interface Point {
  row: number;
  column: number;
  first: number;
  second: number;
}

export class Scatter extends Panel implements MainPanel {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { class: "scatter", role: "img" });
  private readonly status = h("p", { class: "note", role: "status" });
  private points: Point[] = [];
  private positionOf: (point: Point) => [number, number] = () => [0, 0];
  private view: View | null = null;

  constructor(private readonly context: Context) {
    super();
    this.element = h("div", { class: "scatter-view" }, this.canvas, this.status);
    this.canvas.addEventListener("pointermove", (event) => this.moved(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => this.context.hover(null));
    this.canvas.addEventListener("click", (event) => this.clicked(event.offsetX, event.offsetY));
    this.lifetime.observeSize(this.element, () => this.view && this.draw(this.view));
  }

  update(view: View): void {
    this.view = view;
    this.points = this.pairs(view);
    this.draw(view);
    const [first, second] = [this.points.map((point) => point.first), this.points.map((point) => point.second)];
    const correlations = `Pearson ${pearson(first, second).toFixed(3)}, Spearman ${spearman(first, second).toFixed(3)}`;
    this.status.textContent = `${this.points.length} cells that both maps have. ${correlations}.`;
    this.canvas.setAttribute("aria-label", `${this.name(0)} against ${this.name(1)}: ${this.status.textContent}`);
  }

  private pairs(view: View): Point[] {
    const points: Point[] = [];
    alignedValues(this.context, view).forEach((second, at) => {
      const first = view.matrix.values[at]!;
      const [row, column] = [Math.floor(at / view.matrix.columns), at % view.matrix.columns];
      if (!Number.isNaN(first + second)) points.push({ row, column, first, second });
    });
    const step = Math.ceil(points.length / MOST_POINTS);
    return step > 1 ? points.filter((_, at) => at % step === 0) : points;
  }

  private name(index: number): string {
    return namesOf(this.context.panes)[index]!;
  }

  private draw(view: View): void {
    const height = window.innerHeight - chromeOf(this.canvas);
    const size = Math.max(SMALLEST, Math.min(this.element.clientWidth, height));
    const context = sized(this.canvas, size, size);
    const scale = (values: number[], range: [number, number]): ReturnType<typeof scalePow<number, number>> => {
      const [low, high] = [Math.min(0, ...extent(values)), Math.max(...extent(values), 1e-9)];
      return scalePow([low, high], range).exponent(0.5);
    };
    const x = scale(
      this.points.map((point) => point.first),
      [MARGIN.left, size - MARGIN.right],
    );
    const y = scale(
      this.points.map((point) => point.second),
      [size - MARGIN.bottom, MARGIN.top],
    );
    this.positionOf = (point) => [x(point.first), y(point.second)];
    const show = (value: number): string => format.cell(value, view.state.norm, false);
    const [left, right, top, bottom] = [MARGIN.left, size - MARGIN.right, MARGIN.top, size - MARGIN.bottom];
    const text = { kind: "text", size: 11, fill: view.ink.muted, anchor: "middle" } as const;
    const marks: Mark[] = [
      ...x.ticks(4).flatMap((tick): Mark[] => [
        { kind: "line", from: [x(tick), top], to: [x(tick), bottom], stroke: view.ink.line },
        { ...text, x: x(tick), y: bottom + 16, text: show(tick) },
      ]),
      ...y.ticks(4).flatMap((tick): Mark[] => [
        { kind: "line", from: [left, y(tick)], to: [right, y(tick)], stroke: view.ink.line },
        { ...text, x: left - 6, y: y(tick) + 4, text: show(tick), anchor: "end" },
      ]),
      { ...text, x: (size + left) / 2, y: size - 8, text: this.name(0) },
      { ...text, x: 11, y: bottom / 2, text: this.name(1), angle: -Math.PI / 2 },
      ...this.pointMarks(view),
    ];
    paintMarks(context, marks);
  }

  private pointMarks({ ink, selected, own }: View): Mark[] {
    const opacity = Math.max(0.15, Math.min(0.7, 400 / Math.max(1, this.points.length)));
    return this.points.map((point) => {
      const chosen = point.row === selected.row;
      const [x, y] = this.positionOf(point);
      const fill = chosen ? ink.accent : own[point.row] === point.column ? ink.muted : ink.text;
      return { kind: "circle", x, y, radius: chosen ? 3.2 : 2.2, fill, opacity: chosen ? 1 : opacity };
    });
  }

  private nearest(x: number, y: number): Point | null {
    let [best, least]: [Point | null, number] = [null, REACH];
    for (const point of this.points) {
      const [left, top] = this.positionOf(point);
      const distance = Math.hypot(left - x, top - y);
      if (distance < least) [best, least] = [point, distance];
    }
    return best;
  }

  private moved(x: number, y: number): void {
    const { view } = this;
    const point = this.nearest(x, y);
    this.context.hover(point);
    if (!point || !view) {
      this.canvas.title = "";
      return;
    }
    const [query, key] = [view.queries.shown[point.row] ?? "", view.keys.shown[point.column] ?? ""];
    const values = [point.first, point.second].map((value) => format.cell(value, view.state.norm, false));
    this.canvas.title = `${label(query)} \u2190 ${label(key)}: ${values.join(" and ")}`;
  }

  private clicked(x: number, y: number): void {
    const point = this.nearest(x, y);
    if (point) this.context.choose(point);
  }
}

function extent(values: number[]): [number, number] {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [0, 0]);
}
