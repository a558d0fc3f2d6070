/** The current map as a figure of its own: an SVG document with labels, legend and title, from which the PNG is made too. */
import { axisBottom } from "d3-axis";
import { select } from "d3-selection";
import { shade } from "../draw/colour";
import { s } from "../draw/dom";
import { scaleOf, tickFormat } from "../draw/legend";
import { cellsOf, FONT, groupsOf } from "../draw/paint";
import type { View } from "../draw/view";
import { quantity } from "../model/scopes";
import { isolated, shortLabel } from "../model/tokens";

const MOST_RECTANGLES = 16_384;
const LEGEND = { width: 220, height: 10 };

export interface Figure {
  svg: SVGSVGElement;
  width: number;
  height: number;
}

export function titleOf({ state, lens }: View): string {
  const scope = state.base === "" ? state.scope : `${state.scope} \u2212 ${state.base}`;
  const head = state.head > 0 && lens.analysis.hasHeads(state.scope) ? `, head ${state.head}` : "";
  return `${scope}, layer ${state.layer}${head}`;
}

export function figure(view: View): Figure {
  const { matrix, queries, keys, ink, state, lens } = view;
  const cell = matrix.columns > 200 ? 4 : matrix.columns > 80 ? 10 : 18;
  const size = Math.max(7, Math.min(12, cell - 3));
  const labels = cell >= 9;
  const wide = (texts: string[]): number =>
    labels ? Math.min(130, Math.max(0, ...texts.map((text) => shortLabel(text).length)) * size * 0.58 + 12) : 12;
  const [left, top] = [wide(queries.labels) + 12, 52 + wide(keys.labels)];
  const [plotWidth, plotHeight] = [matrix.columns * cell, matrix.rows * cell];
  const width = Math.max(left + plotWidth + 24, left + LEGEND.width + 60, 360);
  const height = top + plotHeight + 78;
  const svg = s("svg", {
    xmlns: "http://www.w3.org/2000/svg",
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    "font-family": FONT,
    "font-size": size,
  });
  svg.append(s("rect", { width, height, fill: ink.panel }));
  svg.append(s("text", { x: 12, y: 22, fill: ink.text, "font-size": 14, "font-weight": 600 }, titleOf(view)));
  svg.append(
    s(
      "text",
      { x: 12, y: 38, fill: ink.muted, "font-size": 11 },
      isolated(
        [lens.analysis.model, shortLabel(lens.analysis.text.replaceAll(" ", "\u00a0"), 60)]
          .filter(Boolean)
          .join(" \u00b7 "),
      ),
    ),
  );
  svg.append(s("rect", { x: left, y: top, width: plotWidth, height: plotHeight, fill: ink.hatch }));
  svg.append(cells(view, left, top, cell));
  if (labels) svg.append(...axes(view, left, top, cell));
  for (const [, first] of groupsOf(keys).slice(1)) {
    svg.append(
      s("line", {
        x1: left + first * cell,
        x2: left + first * cell,
        y1: top,
        y2: top + plotHeight,
        stroke: ink.accent,
      }),
    );
  }
  svg.append(legend(view, left, top + plotHeight + 28));
  svg.append(
    s(
      "text",
      { x: left, y: top + plotHeight + 22, fill: ink.muted, "font-size": 11 },
      quantity(state.scope, state.norm) + (state.base ? ", difference" : ""),
    ),
  );
  return { svg, width, height };
}

function cells({ matrix, palette }: View, left: number, top: number, cell: number): SVGElement {
  if (matrix.values.length > MOST_RECTANGLES) {
    const href = cellsOf(matrix, palette).toDataURL("image/png");
    return s("image", {
      href,
      x: left,
      y: top,
      width: matrix.columns * cell,
      height: matrix.rows * cell,
      preserveAspectRatio: "none",
      "image-rendering": "pixelated",
    });
  }
  const group = s("g", { "shape-rendering": "crispEdges" });
  matrix.values.forEach((value, at) => {
    if (Number.isNaN(value)) return;
    const [x, y] = [left + (at % matrix.columns) * cell, top + Math.floor(at / matrix.columns) * cell];
    group.append(s("rect", { x, y, width: cell, height: cell, fill: palette.css[shade(value, palette)]! }));
  });
  return group;
}

function axes({ queries, keys, ink }: View, left: number, top: number, cell: number): SVGElement[] {
  const rows = queries.labels.map((text, row) =>
    s(
      "text",
      {
        x: left - 6,
        y: top + (row + 0.5) * cell,
        fill: queries.special[row] ? ink.muted : ink.text,
        "text-anchor": "end",
        "dominant-baseline": "central",
      },
      isolated(shortLabel(text)),
    ),
  );
  const columns = keys.labels.map((text, column) =>
    s(
      "text",
      {
        transform: `translate(${left + (column + 0.5) * cell},${top - 6}) rotate(-90)`,
        fill: keys.special[column] ? ink.muted : ink.text,
        "dominant-baseline": "central",
      },
      isolated(shortLabel(text)),
    ),
  );
  return [...rows, ...columns];
}

function legend({ palette, ink, state }: View, x: number, y: number): SVGElement {
  const group = s("g", { transform: `translate(${x},${y})` });
  const step = LEGEND.width / 64;
  for (let at = 0; at < 64; at++)
    group.append(s("rect", { x: at * step, width: step + 0.5, height: LEGEND.height, fill: palette.css[at * 4 + 2]! }));
  const show = tickFormat(state.norm, palette.limit);
  const axis = axisBottom(scaleOf(palette, LEGEND.width))
    .ticks(4)
    .tickSize(4)
    .tickFormat((value) => show(Number(value)));
  select(group)
    .append("g")
    .attr("transform", `translate(0,${LEGEND.height})`)
    .call(axis)
    .call((made) => {
      made.select(".domain").remove();
      made.attr("font-family", null).attr("font-size", 10).attr("color", ink.muted);
    });
  return group;
}

export function svgText({ svg }: Figure): string {
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(svg)}\n`;
}

/** Several figures beside each other. */
export function beside(figures: Figure[]): Figure {
  if (figures.length === 1) return figures[0]!;
  const width = figures.reduce((sum, one) => sum + one.width, 0);
  const height = Math.max(...figures.map((one) => one.height));
  const svg = s("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` });
  let x = 0;
  for (const one of figures) {
    one.svg.setAttribute("x", String(x));
    svg.append(one.svg);
    x += one.width;
  }
  return { svg, width, height };
}

export async function pngOf(made: Figure): Promise<Blob> {
  const scale = Math.min(2, 8000 / Math.max(made.width, made.height));
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(made))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(made.width * scale);
  canvas.height = Math.round(made.height * scale);
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The picture could not be made."))), "image/png");
  });
}
