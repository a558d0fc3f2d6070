/** A flow graph as marks: bands, stubs, nodes and labels, with a panel of shares below. */

import * as format from "../model/format";
import { cut, holdsSink, isolated, phrase, shortLabel } from "../model/tokens";
import { inkOn } from "./colour";
import { depthName, type FlowView, largest, signColour, signs, tint } from "./flowview";
import type { Mark, TextMark } from "./marks";
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

export interface FlowDrawing {
  marks: Mark[];
  width: number;
  height: number;
}

export function flowDrawing(view: FlowView, at: Streams): FlowDrawing {
  const below = shareMarks(view, at);
  const bands = at.bands
    .map((band, index) => ({ width: band.width, mark: bandMark(view, band, index, nodeWidth(at)) }))
    .sort((a, b) => b.width - a.width);
  const marks: Mark[] = [
    { kind: "group", marks: depthMarks(view, at) },
    { kind: "group", marks: bands.map(({ mark }) => mark) },
    { kind: "group", class: "stubs", marks: stubMarks(view, at) },
    { kind: "group", marks: nodeMarks(view, at) },
    { kind: "group", marks: [...tokenMarks(view, at), ...targetMarks(view, at)] },
    { kind: "group", y: at.bottom + 14, marks: below.marks },
  ];
  return { marks, width: at.width, height: at.bottom + below.height + 8 };
}

function depthMarks({ flow, ink }: FlowView, at: Streams): Mark[] {
  const step = Math.max(1, Math.ceil(24 / columnWidth(at)));
  return at.columns.flatMap((x, depth): Mark[] => {
    const named = (depth % step === 0 && depth + step <= flow.layers) || depth === flow.layers;
    const text = depth === 0 ? "in" : String(depth);
    return [
      { kind: "line", from: [x, 18], to: [x, at.bottom], stroke: ink.line },
      ...(named ? [{ kind: "text", x, y: 11, text, size: 11, fill: ink.muted, anchor: "middle" } as const] : []),
    ];
  });
}

/** Pixels between two depths. */
function columnWidth({ columns, width }: Streams): number {
  return columns.length > 1 ? columns[1]! - columns[0]! : width;
}

function nodeWidth(at: Streams): number {
  return Math.min(WIDEST_NODE, columnWidth(at) / 2);
}

function bandMark({ dark }: FlowView, { edge, x, y, width }: Band, index: number, node: number): Mark {
  const [before, after] = [x[0] + node / 2, x[1] - node / 2];
  const bend = (before + after) / 2;
  // A ribbon whose height is the width of the band wherever it is measured: at a node the heights add up.
  const [top, bottom] = [y.map((at) => at - width / 2), y.map((at) => at + width / 2)];
  const [over, under] = [`${bend},${top[0]} ${bend},${top[1]}`, `${bend},${bottom[1]} ${bend},${bottom[0]}`];
  const colour = signColour(edge.value, dark);
  const { layer, from, to } = edge;
  return {
    kind: "path",
    class: "band",
    d: `M${before},${top[0]}C${over} ${after},${top[1]}V${bottom[1]}C${under} ${before},${bottom[0]}Z`,
    fill: colour,
    stroke: colour,
    lineWidth: 0.4,
    opacity: from === to ? 0.38 : 0.6,
    data: { edge: index, layer, from, to },
  };
}

/** Everything that is not an edge, as thorns at the nodes whose height is its size: one path for those of a kind. */
function stubMarks({ ink, dark }: FlowView, at: Streams): Mark[] {
  const length = Math.min(LONGEST_STUB, columnWidth(at) / 4);
  const kinds = grouped(at.stubs, ({ depth, side, kind, value }) => [depth, side, kind, Math.sign(value)].join());
  return [...kinds.values()].map((alike) => {
    const { depth, side, kind, value } = alike[0]!;
    const away = side === "out" ? 1 : -1;
    const foot = at.columns[depth]! + (away * nodeWidth(at)) / 2;
    const thorn = ({ y, width }: Stub): string =>
      `M${foot},${y - width / 2}L${foot + away * length},${y}L${foot},${y + width / 2}Z`;
    const rows = alike.map(({ row }) => row).join();
    return {
      kind: "path",
      class: `stub ${kind}`,
      d: alike.map(thorn).join(""),
      fill: kind === "bias" ? ink.muted : signColour(value, dark),
      opacity: 0.5,
      data: { at: depth, side, kind, sign: Math.sign(value), rows },
    };
  });
}

/** Every node's relevance as a bar of the same scale as the edges: what enters it, with its bias, and what leaves it. */
function nodeMarks(view: FlowView, at: Streams): Mark[] {
  const { flow, node, ink, dark } = view;
  const [width, reach] = [nodeWidth(at), Math.min(10, columnWidth(at) / 3)];
  return at.relevance.flatMap((values, depth) =>
    [...values].flatMap((value, row): Mark[] => {
      const rowBox = at.rows[row]!;
      if (at.rows[row - 1] === rowBox || (row >= flow.own && value === 0)) return [];
      const [x, height] = [at.columns[depth]!, Math.max(1.5, Math.abs(value) * at.scale)];
      const chosen = node?.depth === depth && node.row === row;
      const bar: Mark = {
        kind: "rect",
        class: "node",
        x: x - width / 2,
        y: middle(rowBox) - height / 2,
        width,
        height,
        radius: 1,
        fill: signColour(value, dark),
        data: { depth, row },
        ...(chosen ? { stroke: ink.accent, lineWidth: 2.5 } : {}),
      };
      if (rowBox.folded > 1) return [bar];
      const box = { x: x - reach, y: rowBox.top, width: 2 * reach, height: rowBox.height };
      return [bar, { kind: "rect", class: "reach", ...box, fill: "transparent", data: { depth, row } }];
    }),
  );
}

/** The tokens at the left, tinted by their attribution; where rows are too thin for all names, some, next to the tints. */
function tokenMarks({ flow, ink, dark, node, stack }: FlowView, at: Streams): Mark[] {
  const attribution = flow.relevance[0]!;
  const sinks = flow.rows.members.map((members) => holdsSink(stack.tokens, members));
  const colours = signs(largest(attribution.filter((_, row) => !sinks[row])), dark);
  const thin = at.smallest < LINE_HEIGHT;
  let bottom = 0;
  return at.rows.flatMap((rowBox, row): Mark[] => {
    if (rowBox === at.rows[row - 1]) return [];
    const y = middle(rowBox);
    const room = y - bottom >= LINE_HEIGHT || node?.row === row;
    if (room) bottom = y;
    const base = { kind: "text", x: at.left - (thin ? 24 : 14), y, anchor: "end", baseline: "middle" } as const;
    if (rowBox.folded > 1) {
      return room ? [{ ...base, text: `\u22ef ${rowBox.folded} tokens`, size: 10.5, fill: ink.muted }] : [];
    }
    const source = row >= flow.own || sinks[row]!; // without a tint
    const background = source ? ink.panel : tint(attribution[row]!, colours);
    const name: TextMark = {
      ...base,
      class: "label",
      text: isolated(shortLabel(flow.rows.shown[row]!)),
      size: LABEL_SIZE,
      weight: node?.row === row ? 700 : 400,
      fill: source ? ink.muted : thin ? ink.text : inkOn(background),
      data: { depth: 0, row },
    };
    const tall = Math.min(15, rowBox.height);
    const tinted: Mark = thin
      ? { kind: "rect", x: at.left - 20, y: y - tall / 2, width: 10, height: tall, fill: background }
      : { kind: "rect", x: 2, y: y - 7.5, width: at.left - 12, height: 15, radius: 3, fill: background };
    return room ? [tinted, name] : [tinted];
  });
}

/** What is explained, at the token where the model predicts it. */
function targetMarks({ flow, target, stack, ink, state, explanation }: FlowView, at: Streams): Mark[] {
  if (state.part === "encoder" && explanation.hasEncoder) return [];
  const token = stack.tokens.position.indexOf(target.position);
  const rowBox = at.rows[flow.rows.of[token] ?? -1];
  if (!rowBox) return [];
  const x = at.columns[at.columns.length - 1]! + 8;
  const y = middle(rowBox);
  const name = isolated(cut(phrase(target.name), TARGET_LENGTH));
  return [
    { kind: "text", x, y: y - 3, text: name, size: LABEL_SIZE, weight: 700, fill: ink.text },
    { kind: "text", x, y: y + 11, text: format.signed(target.value), size: 11, fill: ink.muted },
  ];
}

/** One line of the panel below the graph: a value for each layer. */
interface ShareLine {
  name: string;
  height: number;
  values: number[];
}

function shareLines({ flow, node }: FlowView): ShareLine[] {
  const of = (values: Float64Array): number =>
    node ? values[node.row]! : values.reduce((sum, value) => sum + value, 0);
  const count = flow.heads[0]?.length ?? 0;
  const heads = Array.from({ length: count }, (_, head) => ({
    name: `head ${head + 1}`,
    height: HEAD_HEIGHTS[count > FEW_HEADS ? 1 : 0],
    values: flow.heads.map((values) => of(values[head]!)),
  }));
  return [
    ...heads,
    { name: "feed-forward", height: LINE_HEIGHT, values: flow.feedForward.map(of) },
    { name: "bias", height: LINE_HEIGHT, values: flow.bias.map(of) },
  ];
}

/** Below the graph, in the column of each layer: what its heads and feed-forwards carried, and what its biases added. */
function shareMarks(view: FlowView, at: Streams): { marks: Mark[]; height: number } {
  const { flow, ink, dark } = view;
  if (flow.layers === 0 || view.explanation.estimate !== null) return { marks: [], height: 0 };
  const lines = shareLines(view);
  const count = lines.length - 2;
  const step = Math.max(1, Math.ceil(count / FEW_HEADS));
  const gap = Math.min(2, columnWidth(at) / 8);
  const x = at.width < NARROW ? 2 : at.left;
  const marks: Mark[] = [{ kind: "text", x, y: 6, text: sharesTitle(view), size: 11, fill: ink.muted }];
  const largestHead = largest(lines.slice(0, count).flatMap(({ values }) => values));
  let y = 16;
  lines.forEach(({ name, height, values }, line) => {
    const isHead = line < count;
    if (!isHead) y += 4;
    const colours = signs(isHead ? largestHead : largest(values), dark);
    if (!isHead || line % step === 0) {
      const place = { x: at.left - 14, y: y + height / 2, anchor: "end", baseline: "middle" } as const;
      marks.push({ kind: "text", ...place, text: name, size: Math.min(11, height + 1), fill: ink.muted });
    }
    values.forEach((value, index) => {
      const [before, after] = [at.columns[index]!, at.columns[index + 1]!];
      marks.push({
        kind: "rect",
        x: before + gap,
        y,
        width: after - before - 2 * gap,
        height: height - 1,
        fill: tint(value, colours),
        title: `${name}, layer ${index + 1}: ${format.signed(value)}`,
      });
    });
    y += height;
  });
  return { marks, height: y + 14 };
}

function sharesTitle({ node, flow }: FlowView): string {
  if (!node) return "contributions of the heads, feed-forward and biases of each layer";
  return `what heads take from ${isolated(shortLabel(flow.rows.shown[node.row]!))}, and what its feed-forward and biases add`;
}

export function nodeTitle({ flow }: FlowView, depth: number, row: number): string {
  return `${shortLabel(flow.rows.shown[row]!, 40)}, ${depth === 0 ? depthName(0) : `after ${depthName(depth)}`}`;
}
