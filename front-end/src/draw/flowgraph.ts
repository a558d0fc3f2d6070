/** Draws a flow graph as SVG with all colours in its attributes, so that what is on the page can be saved as it is. */

import * as format from "../model/format";
import { cut, isolated, phrase, shortLabel } from "../model/tokens";
import { inkOn } from "./colour";
import { s } from "./dom";
import { depthName, type FlowView, inkOf, largest, signs, tint } from "./flowview";
import { FONT } from "./paint";
import { type Band, grouped, middle, type Streams, type Stub } from "./streams";

export const LABEL_SIZE = 12;
export const TARGET_LENGTH = 18;
const WIDEST_NODE = 5;
/** Of a few heads, and of many. */
const HEAD_HEIGHTS = [12, 9] as const;
const FEW_HEADS = 6;
const LINE_HEIGHT = 12;
const LONGEST_STUB = 16;
/** Pictures below this width have no room for a margin. */
const NARROW = 480;

export interface Drawing {
  svg: SVGSVGElement;
  /** In the order of the flow's edges. */
  bands: SVGPathElement[];
  height: number;
}

export function drawFlow(view: FlowView, at: Streams): Drawing {
  const bands = at.bands.map((band, index) => path(view, band, index, nodeWidth(at)));
  const below = shares(view, at);
  const height = at.bottom + below.height + 8;
  const svg = s(
    "svg",
    {
      xmlns: "http://www.w3.org/2000/svg",
      width: at.width,
      height,
      viewBox: `0 0 ${at.width} ${height}`,
      "font-family": FONT,
      "font-size": LABEL_SIZE,
    },
    s("g", {}, ...header(view, at)),
    s("g", {}, ...bands.toSorted((a, b) => Number(b.dataset.size) - Number(a.dataset.size))),
    s("g", { class: "stubs" }, ...stubs(view, at)),
    s("g", {}, ...nodes(view, at)),
    s("g", {}, ...labels(view, at), ...targetLabel(view, at)),
    below.group,
  );
  return { svg, bands, height };
}

function header({ flow, ink }: FlowView, at: Streams): SVGElement[] {
  const step = Math.max(1, Math.ceil(24 / columnWidth(at)));
  return at.columns.flatMap((x, depth) => [
    s("line", { x1: x, x2: x, y1: 18, y2: at.bottom, stroke: ink.line }),
    ...((depth % step === 0 && depth + step <= flow.layers) || depth === flow.layers
      ? [
          s(
            "text",
            { x, y: 11, fill: ink.muted, "text-anchor": "middle", "font-size": 11 },
            depth === 0 ? "in" : String(depth),
          ),
        ]
      : []),
  ]);
}

/** Pixels between two depths. */
function columnWidth({ columns, width }: Streams): number {
  return columns.length > 1 ? columns[1]! - columns[0]! : width;
}

function nodeWidth(at: Streams): number {
  return Math.min(WIDEST_NODE, columnWidth(at) / 2);
}

function path({ dark }: FlowView, { edge, x, y, width }: Band, index: number, node: number): SVGPathElement {
  const [before, after] = [x[0] + node / 2, x[1] - node / 2];
  const bend = (before + after) / 2;
  // A ribbon whose height is the width of the band wherever one measures it: at a node the heights add up.
  const [top, bottom] = [y.map((at) => at - width / 2), y.map((at) => at + width / 2)];
  const [over, under] = [`${bend},${top[0]} ${bend},${top[1]}`, `${bend},${bottom[1]} ${bend},${bottom[0]}`];
  const colour = inkOf(edge.value, dark);
  const opacity = edge.from === edge.to ? 0.38 : 0.6;
  const element = s("path", {
    class: "band",
    d: `M${before},${top[0]}C${over} ${after},${top[1]}V${bottom[1]}C${under} ${before},${bottom[0]}Z`,
    fill: colour,
    "fill-opacity": opacity,
    stroke: colour,
    "stroke-width": 0.4,
    "stroke-opacity": opacity,
  });
  const { layer, from, to } = edge;
  Object.assign(element.dataset, { edge: index, layer, from, to });
  element.dataset.size = String(width);
  return element;
}

/** What is no edge as thorns at the nodes, as high at their feet as what they stand for: one path for those of a kind. */
function stubs({ ink, dark }: FlowView, at: Streams): SVGElement[] {
  const length = Math.min(LONGEST_STUB, columnWidth(at) / 4);
  const kinds = grouped(at.stubs, ({ depth, side, kind, value }) => [depth, side, kind, Math.sign(value)].join());
  return [...kinds.values()].map((alike) => {
    const { depth, side, kind, value } = alike[0]!;
    const away = side === "out" ? 1 : -1;
    const foot = at.columns[depth]! + (away * nodeWidth(at)) / 2;
    const thorn = ({ y, width }: Stub): string =>
      `M${foot},${y - width / 2}L${foot + away * length},${y}L${foot},${y + width / 2}Z`;
    const element = s("path", {
      class: `stub ${kind}`,
      d: alike.map(thorn).join(""),
      fill: kind === "bias" ? ink.muted : inkOf(value, dark),
      "fill-opacity": 0.5,
    });
    const rows = alike.map(({ row }) => row).join();
    Object.assign(element.dataset, { at: depth, side, kind, sign: Math.sign(value), rows });
    return element;
  });
}

/** Every node's relevance as a bar of the same scale as the edges: what enters it, with its bias, and what leaves it. */
function nodes(view: FlowView, at: Streams): SVGElement[] {
  const { flow, node, ink, dark } = view;
  return at.relevance.flatMap((values, depth) =>
    [...values].flatMap((value, row) => {
      const place = at.rows[row]!;
      if (at.rows[row - 1] === place || (row >= flow.own && value === 0)) return [];
      const [x, height] = [at.columns[depth]!, Math.max(1.5, Math.abs(value) * at.scale)];
      const chosen = node?.depth === depth && node.row === row;
      const bar = s("rect", {
        class: "node",
        x: x - nodeWidth(at) / 2,
        y: middle(place) - height / 2,
        width: nodeWidth(at),
        height,
        rx: 1,
        fill: inkOf(value, dark),
        ...(chosen ? { stroke: ink.accent, "stroke-width": 2.5 } : {}),
      });
      const reach = Math.min(10, columnWidth(at) / 3);
      const target = s("rect", {
        class: "reach",
        x: x - reach,
        y: place.top,
        width: 2 * reach,
        height: place.height,
        fill: "transparent",
      });
      for (const element of [bar, target]) {
        element.dataset.depth = String(depth);
        element.dataset.row = String(row);
      }
      return place.folded > 1 ? [bar] : [bar, target];
    }),
  );
}

/** The tokens at the left, tinted by their attribution; where rows are too thin for all names, some, beside the tints. */
function labels({ flow, ink, dark, node }: FlowView, at: Streams): SVGElement[] {
  const attribution = flow.relevance[0]!;
  const colours = signs(largest(attribution), dark);
  const thin = at.smallest < LINE_HEIGHT;
  let bottom = 0;
  return at.rows.flatMap((place, row) => {
    if (place === at.rows[row - 1]) return [];
    const y = middle(place);
    const room = y - bottom >= LINE_HEIGHT || node?.row === row;
    if (room) bottom = y;
    const text = { x: at.left - (thin ? 24 : 14), y, "text-anchor": "end", "dominant-baseline": "central" };
    if (place.folded > 1) {
      if (!room) return [];
      return [s("text", { ...text, fill: ink.muted, "font-size": 10.5 }, `\u22ef ${place.folded} tokens`)];
    }
    const value = attribution[row]!;
    const source = row >= flow.own;
    const background = source ? ink.panel : tint(value, colours);
    const name = shortLabel(flow.rows.shown[row]!);
    const fill = source ? ink.muted : thin ? ink.text : inkOn(background);
    const weight = node?.row === row ? 700 : 400;
    const label = s("text", { ...text, fill, "font-weight": weight, class: "label" }, isolated(name));
    label.dataset.depth = "0";
    label.dataset.row = String(row);
    const tall = Math.min(15, place.height);
    const mark = thin
      ? s("rect", { x: at.left - 20, y: y - tall / 2, width: 10, height: tall, fill: background })
      : s("rect", { x: 2, y: y - 7.5, width: at.left - 12, height: 15, rx: 3, fill: background });
    return room ? [mark, label] : [mark];
  });
}

/** What is explained, at the token where the model says it. */
function targetLabel({ flow, target, stack, ink, state, explanation }: FlowView, at: Streams): SVGElement[] {
  if (state.part === "encoder" && explanation.hasEncoder) return [];
  const token = stack.tokens.position.indexOf(target.position);
  const place = at.rows[flow.rows.of[token] ?? -1];
  if (!place) return [];
  const x = at.columns[at.columns.length - 1]! + 8;
  const y = middle(place);
  return [
    s("text", { x, y: y - 3, fill: ink.text, "font-weight": 700 }, isolated(cut(phrase(target.name), TARGET_LENGTH))),
    s("text", { x, y: y + 11, fill: ink.muted, "font-size": 11 }, format.signed(target.value)),
  ];
}

/** Below the graph, in the column of each layer: what its heads and feed-forwards carried, and what its biases added. */
function shares(view: FlowView, at: Streams): { group: SVGElement; height: number } {
  const { flow, node, ink, dark } = view;
  const group = s("g", { transform: `translate(0,${at.bottom + 14})` });
  if (flow.layers === 0 || view.explanation.estimate !== null) return { group, height: 0 };
  const of = (values: Float64Array): number =>
    node ? values[node.row]! : values.reduce((sum, value) => sum + value, 0);
  const count = flow.heads[0]?.length ?? 0;
  const lines = [
    ...Array.from({ length: count }, (_, head) => ({
      name: `head ${head + 1}`,
      height: HEAD_HEIGHTS[count > FEW_HEADS ? 1 : 0],
      values: flow.heads.map((heads) => of(heads[head]!)),
    })),
    { name: "feed-forward", height: LINE_HEIGHT, values: flow.feedForward.map(of) },
    { name: "bias", height: LINE_HEIGHT, values: flow.bias.map(of) },
  ];
  let y = 16;
  const step = Math.max(1, Math.ceil(count / FEW_HEADS));
  const x = at.width < NARROW ? 2 : at.left;
  group.append(s("text", { x, y: 6, fill: ink.muted, "font-size": 11 }, sharesTitle(view)));
  lines.forEach(({ name, height, values }, line) => {
    if (line >= count) y += 4;
    const colours = signs(
      line < count ? largest(lines.slice(0, count).flatMap((one) => one.values)) : largest(values),
      dark,
    );
    if (line >= count || line % step === 0) {
      const text = { x: at.left - 14, y: y + height / 2, "text-anchor": "end", "dominant-baseline": "central" };
      group.append(s("text", { ...text, fill: ink.muted, "font-size": Math.min(11, height + 1) }, name));
    }
    const gap = Math.min(2, columnWidth(at) / 8);
    values.forEach((value, index) => {
      const [before, after] = [at.columns[index]!, at.columns[index + 1]!];
      const told = `${name}, layer ${index + 1}: ${format.signed(value)}`;
      const fill = tint(value, colours);
      group.append(
        s(
          "rect",
          { x: before + gap, y, width: after - before - 2 * gap, height: height - 1, fill },
          s("title", {}, told),
        ),
      );
    });
    y += height;
  });
  return { group, height: y + 14 };
}

function sharesTitle({ node, flow }: FlowView): string {
  if (!node) return "what heads, feed-forward and biases of each layer bring";
  return `what heads take from ${isolated(shortLabel(flow.rows.shown[node.row]!))}, its feed-forward and biases bring`;
}

export function nodeTitle({ flow }: FlowView, depth: number, row: number): string {
  return `${shortLabel(flow.rows.shown[row]!, 40)}, ${depth === 0 ? depthName(0) : `after ${depthName(depth)}`}`;
}
