/** The current view as a figure of its own, with title and legend: the marks on the page at a layout for paper. */
import type { AnswerView } from "../draw/answerview";
import { h } from "../draw/dom";
import type { FlowDrawing } from "../draw/flowmarks";
import { type FlowView, largest, signColour } from "../draw/flowview";
import { layoutAt } from "../draw/geometry";
import type { Ink } from "../draw/ink";
import { LEGEND, legendMarks, legendTitle } from "../draw/legend";
import { cellsOf, mapMarks, NO_MATCHES, surroundings } from "../draw/mapmarks";
import { type Mark, paintMarks, svgDocument } from "../draw/marks";
import { chipMarks, imageMarks, ribbonLayout, ribbonMarks } from "../draw/ribbons";
import type { SimilarityView } from "../draw/similarityview";
import { greyedOf, methodShown, ownBarsOf, quantityShown, titleOf, type View } from "../draw/view";
import { ranking } from "../model/answer";
import { addend, number } from "../model/format";
import { hasImage } from "../model/similarity";
import { isolated, phrase, shortLabel } from "../model/tokens";

const MARGIN = 12;
/** Height of the title and the line below it. */
const HEADING = 50;
const SMALLEST_WIDTH = 360;
const SIMILARITY_WIDTH = 860;
const NOTHING = { row: -1, column: -1 };

export interface Figure {
  marks: Mark[];
  width: number;
  height: number;
}

/** The map of a view, without what is selected. */
export function mapFigure(view: View): Figure {
  const { matrix, queries, keys, ink, palette, state, lens, dark } = view;
  const cell = matrix.columns > 200 ? 4 : matrix.columns > 80 ? 10 : 18;
  const ownBars = ownBarsOf(view);
  const { rows, columns } = matrix;
  const at = layoutAt(cell, { rows, columns, ...surroundings({ queries, keys, ownBars }) });
  const cells = cellsOf(lens.painted(state), palette, greyedOf(state, lens, dark));
  const map = mapMarks(at, { cells, queries, keys, ownBars, ink, selected: NOTHING, matches: NO_MATCHES });
  const title = legendTitle(palette, quantityShown(view));
  const text = shortLabel(lens.analysis.text.replaceAll(" ", "\u00a0"), 60);
  const [x, y] = [MARGIN + LEGEND.side, HEADING + at.height + 20];
  return withHeading(ink, titleOf(view), [lens.analysis.model, methodShown(view), text], {
    width: Math.max(at.width, LEGEND.width + 2 * LEGEND.side, SMALLEST_WIDTH) + 2 * MARGIN,
    height: y + LEGEND.height + 12,
    marks: [
      { kind: "group", x: MARGIN, y: HEADING, marks: map },
      { kind: "text", x, y, text: title, size: 11, fill: ink.muted },
      { kind: "group", x, y: y + 6, marks: legendMarks(palette, state.norm, ink.muted) },
    ],
  });
}

/** The flow graph as it is on the page. */
export function flowFigure({ ink, target, explanation, flow }: FlowView, drawing: FlowDrawing): Figure {
  const text = shortLabel(explanation.text.replaceAll(" ", "\u00a0"), 60);
  const about = [explanation.model, explanation.method, text, `${flow.edges.length} edges`];
  return withHeading(ink, isolated(`Flow to ${phrase(target.name)}`), about, {
    width: drawing.width + 2 * MARGIN,
    height: drawing.height + HEADING + 6,
    marks: [{ kind: "group", x: MARGIN, y: HEADING, marks: drawing.marks }],
  });
}

/** Both texts with the ribbons between them. */
export function similarityFigure(view: SimilarityView): Figure {
  const { account, pairs, colours, ink, dark } = view;
  const at = ribbonLayout(account, pairs, SIMILARITY_WIDTH);
  const { measure, value, facts, sides } = account.similarity;
  const about = [
    String(facts.model ?? ""),
    `${pairs.length} pairs`,
    shortText(sides.first.text),
    shortText(sides.second.text),
  ];
  return withHeading(ink, `${measure} ${number(value)}`, about, {
    width: at.width + 2 * MARGIN,
    height: at.height + HEADING + MARGIN,
    marks: [
      {
        kind: "group",
        x: MARGIN,
        y: HEADING,
        marks: [
          ...imageMarks(at, account),
          ...(hasImage(account) ? [] : ribbonMarks(at, account, pairs, { dark, focus: null })),
          ...chipMarks(at, account, colours, ink, dark),
        ],
      },
    ],
  });
}

const ANSWER = { width: 860, line: 22, name: 470, most: 40 };

/** The shares as bars: the largest items, the others as one, and what was left out. */
export function answerFigure({ answer, shares, ink, dark }: AnswerView): Figure {
  const left = answer.items.flatMap(({ ranked }, item) => (ranked ? [] : [{ item, share: shares[item]!, count: 1 }]));
  const lines = [...ranking(answer.items, shares, ANSWER.most), ...left];
  const most = largest(lines.map(({ share }) => share)) || 1;
  const half = (ANSWER.width - ANSWER.name - 90) / 2;
  const middle = ANSWER.name + 10 + half;
  const marks = lines.flatMap(({ item, share, count }, index): Mark[] => {
    const name = item < 0 ? `${count} others` : answer.items[item]!.text.replace(/\s+/gu, "\u00a0");
    const fill = answer.items[item]?.ranked ? ink.text : ink.muted;
    const [y, length] = [index * ANSWER.line, (Math.abs(share) / most) * half];
    return [
      { kind: "text", x: 0, y: y + 15, text: isolated(shortLabel(name, 75)), size: 12, fill },
      {
        kind: "rect",
        x: share < 0 ? middle - length : middle,
        y: y + 5,
        width: length,
        height: 12,
        fill: signColour(share, dark),
      },
      { kind: "text", x: ANSWER.width, y: y + 15, text: addend(share), size: 12, anchor: "end", fill: ink.muted },
    ];
  });
  const title = isolated(shortText(answer.answer.map(({ text }) => text).join("")));
  const about = [String(answer.facts.model ?? ""), `${answer.unit}s`, `value ${addend(answer.value)}`];
  return withHeading(ink, title, about, {
    width: ANSWER.width + 2 * MARGIN,
    height: lines.length * ANSWER.line + HEADING + MARGIN,
    marks: [{ kind: "group", x: MARGIN, y: HEADING, marks }],
  });
}

function shortText(text: string): string {
  return shortLabel(text.replace(/\s+/gu, "\u00a0"), 40);
}

function withHeading(ink: Ink, title: string, about: string[], { marks, width, height }: Figure): Figure {
  const subtitle = isolated(about.filter(Boolean).join(" \u00b7 "));
  return {
    width,
    height,
    marks: [
      { kind: "rect", x: 0, y: 0, width, height, fill: ink.panel },
      { kind: "text", x: MARGIN, y: 22, text: title, size: 14, weight: 600, fill: ink.text },
      { kind: "text", x: MARGIN, y: 38, text: subtitle, size: 11, fill: ink.muted },
      ...marks,
    ],
  };
}

/** Several figures in a row. */
export function sideBySide(figures: Figure[]): Figure {
  let x = 0;
  const marks = figures.map(({ width, marks: own }): Mark => {
    x += width;
    return { kind: "group", x: x - width, marks: own };
  });
  return { marks, width: x, height: Math.max(...figures.map(({ height }) => height)) };
}

export function svgText({ marks, width, height }: Figure): string {
  const svg = svgDocument(marks, width, height);
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(svg)}\n`;
}

export function pngOf({ marks, width, height }: Figure): Promise<Blob> {
  const scale = Math.min(2, 8000 / Math.max(width, height));
  const canvas = h("canvas", { width: Math.round(width * scale), height: Math.round(height * scale) });
  const context = canvas.getContext("2d")!;
  context.scale(scale, scale);
  paintMarks(context, marks);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The picture could not be made."))), "image/png");
  });
}
