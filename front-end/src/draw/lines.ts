/** A small line chart over a few named places, such as the scopes of a chain or the layers. */
import { max, min } from "d3-array";
import { axisBottom, axisLeft } from "d3-axis";
import { scaleLinear, scalePoint } from "d3-scale";
import { select } from "d3-selection";
import { s } from "./dom";

const MARGIN = { top: 10, right: 12, bottom: 22, left: 38 };
const MOST_NAMES = 14;

export interface Line {
  name: string;
  points: [string, number][];
}

export interface Chart {
  width: number;
  height: number;
  names: string[];
  lines: Line[];
  /** The upper end of the vertical axis; without it, the largest value. */
  most?: number;
  tick(value: number): string;
  short(name: string): string;
  /** The place to mark. */
  now: string;
}

export function drawLines(svg: SVGSVGElement, chart: Chart): void {
  const { width, height, names, lines, now } = chart;
  const values = lines.flatMap((line) => line.points.map(([, value]) => value)).filter((value) => !Number.isNaN(value));
  const x = scalePoint(names, [MARGIN.left, width - MARGIN.right]).padding(0.2);
  const domain = [Math.min(0, min(values) ?? 0), (chart.most ?? max(values)) || 1];
  const y = scaleLinear(domain, [height - MARGIN.bottom, MARGIN.top]);
  svg.setAttribute("width", String(width));
  svg.setAttribute("height", String(height));
  svg.replaceChildren();
  drawAxes(svg, chart, x, y);
  const place = x(now);
  if (place !== undefined) {
    svg.append(s("line", { class: "now", x1: place, x2: place, y1: MARGIN.top, y2: height - MARGIN.bottom }));
  }
  for (const line of lines) {
    const points = line.points
      .filter(([, value]) => !Number.isNaN(value))
      .map(([name, value]) => [x(name)!, y(value)] as const);
    svg.append(s("polyline", { class: line.name, points: points.map((point) => point.join()).join(" ") }));
    const radius = points.length > 16 ? 1.8 : 2.8;
    for (const [cx, cy] of points) svg.append(s("circle", { class: line.name, cx, cy, r: radius }));
  }
}

function drawAxes(
  svg: SVGSVGElement,
  { width, height, names, tick, short }: Chart,
  x: ReturnType<typeof scalePoint<string>>,
  y: ReturnType<typeof scaleLinear<number, number>>,
): void {
  const step = Math.ceil(names.length / MOST_NAMES);
  const left = axisLeft<number>(y)
    .ticks(3)
    .tickSize(-(width - MARGIN.left - MARGIN.right))
    .tickPadding(6)
    .tickFormat(tick);
  const bottom = axisBottom<string>(x)
    .tickValues(names.filter((_, index) => index % step === 0))
    .tickSize(0)
    .tickPadding(8)
    .tickFormat(short);
  const root = select(svg);
  root.append("g").attr("class", "grid").attr("transform", `translate(${MARGIN.left},0)`).call(left);
  root
    .append("g")
    .attr("class", "names")
    .attr("transform", `translate(0,${height - MARGIN.bottom})`)
    .call(bottom);
  root.selectAll(".domain").remove();
  root.selectAll<SVGTextElement, string>(".names text").each(function (name) {
    // Centred names at the ends would be cut off.
    const beyond = x(name)! + this.getComputedTextLength() / 2 - width;
    if (beyond > 0) this.setAttribute("dx", String(-beyond));
  });
}
