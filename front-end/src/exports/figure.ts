/** The current map as a figure of its own: an SVG document with labels, legend and title, from which the PNG is made too. */
import { shade } from "../draw/colour";
import { h, s } from "../draw/dom";
import type { FlowView } from "../draw/flowview";
import { axisOf, goesBeyond } from "../draw/legend";
import { BESIDE, cellsOf, FONT, groupsOf } from "../draw/paint";
import { besideOf, greyedOf, methodShown, quantityShown, titleOf, type View } from "../draw/view";
import { isolated, phrase, shortLabel } from "../model/tokens";

const MOST_RECTANGLES = 16_384;
const LEGEND = { width: 220, height: 10, arrow: 7 };
const SMALLEST_LABELLED = 9;

export interface Figure {
  svg: SVGSVGElement;
  width: number;
  height: number;
}

/** Where the cells are, and how large they and their labels. */
interface Plan {
  cell: number;
  font: number;
  left: number;
  top: number;
  plotWidth: number;
  plotHeight: number;
}

function planOf({ matrix, queries, keys }: View): Plan {
  const cell = matrix.columns > 200 ? 4 : matrix.columns > 80 ? 10 : 18;
  const font = Math.max(7, Math.min(12, cell - 3));
  const room = (texts: string[]): number => {
    if (cell < SMALLEST_LABELLED) return 12;
    return Math.min(130, Math.max(0, ...texts.map((text) => shortLabel(text).length)) * font * 0.58 + 12);
  };
  return {
    cell,
    font,
    left: room(queries.shown) + 12,
    top: 52 + room(keys.shown),
    plotWidth: matrix.columns * cell,
    plotHeight: matrix.rows * cell,
  };
}

export function figure(view: View): Figure {
  const { keys, ink } = view;
  const plan = planOf(view);
  const { cell, left, top, plotWidth, plotHeight } = plan;
  const width = Math.max(
    left + plotWidth + 24 + (besideOf(view) ? BESIDE.width + BESIDE.gap : 0),
    left + LEGEND.width + 60,
    360,
  );
  const height = top + plotHeight + 78;
  const svg = svgDocument(width, height, { "font-family": FONT, "font-size": plan.font });
  svg.append(s("rect", { width, height, fill: ink.panel }), ...heading(view));
  svg.append(s("rect", { x: left, y: top, width: plotWidth, height: plotHeight, fill: ink.hatch }));
  svg.append(cells(view, plan), ...ownBars(view, plan));
  if (cell >= SMALLEST_LABELLED) svg.append(...axes(view, plan));
  for (const [, first] of groupsOf(keys).slice(1)) {
    const x = left + first * cell;
    svg.append(s("line", { x1: x, x2: x, y1: top, y2: top + plotHeight, stroke: ink.accent }));
  }
  svg.append(legend(view, left, top + plotHeight + 28));
  const y = top + plotHeight + 22;
  svg.append(s("text", { x: left, y, fill: ink.muted, "font-size": 11 }, quantityShown(view)));
  return { svg, width, height };
}

function svgDocument(width: number, height: number, attributes: Record<string, string | number> = {}): SVGSVGElement {
  const viewBox = `0 0 ${width} ${height}`;
  return s("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox, ...attributes });
}

function heading(view: View): SVGElement[] {
  const { ink, lens } = view;
  const text = shortLabel(lens.analysis.text.replaceAll(" ", "\u00a0"), 60);
  const about = [lens.analysis.model, methodShown(view), text].filter(Boolean).join(" \u00b7 ");
  return [
    s("text", { x: 12, y: 22, fill: ink.text, "font-size": 14, "font-weight": 600 }, titleOf(view)),
    s("text", { x: 12, y: 38, fill: ink.muted, "font-size": 11 }, isolated(about)),
  ];
}

function cells(view: View, { left, top, cell, plotWidth, plotHeight }: Plan): SVGElement {
  const { palette } = view;
  const matrix = view.lens.painted(view.state);
  const grey = greyedOf(view.state, view.lens, view.dark);
  if (matrix.values.length > MOST_RECTANGLES) {
    const href = cellsOf(matrix, palette, grey).toDataURL("image/png");
    return s("image", {
      href,
      x: left,
      y: top,
      width: plotWidth,
      height: plotHeight,
      preserveAspectRatio: "none",
      "image-rendering": "pixelated",
    });
  }
  const group = s("g", { "shape-rendering": "crispEdges" });
  matrix.values.forEach((value, at) => {
    if (Number.isNaN(value)) return;
    const [row, column] = [Math.floor(at / matrix.columns), at % matrix.columns];
    const fill = grey?.columns[row] === column ? grey.css : palette.css[shade(value, palette)]!;
    group.append(s("rect", { x: left + column * cell, y: top + row * cell, width: cell, height: cell, fill }));
  });
  return group;
}

/** The shares of the own tokens, where those are not in the map. */
function ownBars(view: View, { left, top, cell, plotWidth }: Plan): SVGElement[] {
  const shares = besideOf(view);
  if (!shares) return [];
  const x = left + plotWidth + BESIDE.gap;
  const [gap, height] = cell >= SMALLEST_LABELLED ? [2, cell - 4] : [0, cell];
  const bars = Array.from(shares, (share, row) => {
    const y = top + row * cell + gap;
    const width = Number.isNaN(share) ? 0 : BESIDE.width * Math.min(1, share);
    return [
      s("rect", { x, y, width: BESIDE.width, height, fill: view.ink.hatch }),
      s("rect", { class: "own", x, y, width, height, fill: view.ink.muted }),
    ];
  });
  return [...bars.flat(), s("text", { x, y: top - 4, fill: view.ink.muted, "font-size": 10 }, "own")];
}

function axes({ queries, keys, ink }: View, { left, top, cell }: Plan): SVGElement[] {
  const rows = queries.shown.map((text, row) =>
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
  const columns = keys.shown.map((text, column) =>
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
  const { width, height, arrow } = LEGEND;
  const group = s("g", { transform: `translate(${x},${y})` });
  const step = width / 64;
  for (let at = 0; at < 64; at++) {
    group.append(s("rect", { x: at * step, width: step + 0.5, height, fill: palette.css[at * 4 + 2]! }));
  }
  if (goesBeyond(palette)) {
    const side = (end: number, tip: number): string => `M${end},0L${tip},${height / 2}L${end},${height}Z`;
    group.append(s("path", { d: side(width, width + arrow), fill: palette.css[255]! }));
    if (palette.diverging) group.append(s("path", { d: side(0, -arrow), fill: palette.css[0]! }));
  }
  group.append(axisOf(palette, width, state.norm, { y: height, colour: ink.muted }));
  return group;
}

/** The flow graph as it is on the page, with its title. */
export function flowFigure({ ink, target, explanation, flow }: FlowView, graph: SVGSVGElement): Figure {
  const [width, graphHeight] = [Number(graph.getAttribute("width")), Number(graph.getAttribute("height"))];
  const height = graphHeight + 56;
  const svg = svgDocument(width + 24, height, { "font-family": FONT });
  const inner = graph.cloneNode(true) as SVGSVGElement;
  for (const band of inner.querySelectorAll<SVGElement>(".band")) {
    const { opacity } = band.style;
    band.removeAttribute("style");
    if (opacity !== "") band.setAttribute("opacity", opacity);
  }
  inner.setAttribute("x", "12");
  inner.setAttribute("y", "50");
  const about = [explanation.model, explanation.method, shortLabel(explanation.text.replaceAll(" ", "\u00a0"), 60)];
  const carried = `${flow.edges.length} edges`;
  svg.append(
    s("rect", { width: width + 24, height, fill: ink.panel }),
    s(
      "text",
      { x: 12, y: 22, fill: ink.text, "font-size": 14, "font-weight": 600 },
      isolated(`Flow to ${phrase(target.name)}`),
    ),
    s("text", { x: 12, y: 38, fill: ink.muted, "font-size": 11 }, isolated([...about, carried].join(" \u00b7 "))),
    inner,
  );
  return { svg, width: width + 24, height };
}

export function svgText({ svg }: Figure): string {
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(svg)}\n`;
}

/** Several figures beside each other. */
export function beside(figures: Figure[]): Figure {
  if (figures.length === 1) return figures[0]!;
  const width = figures.reduce((sum, one) => sum + one.width, 0);
  const height = Math.max(...figures.map((one) => one.height));
  const svg = svgDocument(width, height);
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
  const canvas = h("canvas");
  canvas.width = Math.round(made.width * scale);
  canvas.height = Math.round(made.height * scale);
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The picture could not be made."))), "image/png");
  });
}
