/** A heat map as marks: cells, labels, groups, and what is selected. Owns no state and handles no events. */

import type { Matrix } from "../model/matrix";
import type { Units } from "../model/tokens";
import { isolated, shortLabel } from "../model/tokens";
import { type Greyed, type Palette, paint } from "./colour";
import { type Cell, LARGEST_CELL, type Layout, labelSize } from "./geometry";
import type { Ink } from "./ink";
import { type Box, type GroupMark, type Mark, type TextMark, textWidth } from "./marks";

/** Room for the bars of own tokens, at the right of the map. */
export const OWN_BARS = { gap: 8, width: 40, number: 32 };
/** Height of the names of key groups. */
const GROUP_HEADER = 18;
const LONGEST_LABEL = 150;
/** By how much the label of the first or last row may extend beyond a thin row. */
const HALF_A_LABEL = 6;
/** Smaller cells have no gaps between them. */
const SMALLEST_WITH_GAPS = 9;
/** Rows as high as this have the share of their own token as a number. */
const SMALLEST_NUMBERED = 10;
const BOLD = 600;

/** The cells as a canvas of one pixel each, to be drawn at any size. */
export function cellsOf(matrix: Matrix, colours: Palette, grey: Greyed | null = null): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, matrix.columns);
  canvas.height = Math.max(1, matrix.rows);
  canvas.getContext("2d")!.putImageData(paint(matrix, colours, grey), 0, 0);
  return canvas;
}

/** What a drawing of a heat map shows, wherever it is. */
export interface MapContent {
  cells: HTMLCanvasElement;
  queries: Units;
  keys: Units;
  selected: Cell;
  ink: Ink;
  /** Rows and columns whose labels match a search. */
  matches: Matches;
  /** Of every row the share of its own token, drawn next to it; null where own tokens are in the map. */
  ownBars: Float32Array | null;
}

export interface Matches {
  rows: ReadonlySet<number>;
  columns: ReadonlySet<number>;
}

export const NO_MATCHES: Matches = { rows: new Set(), columns: new Set() };

const widths = new WeakMap<Units, number>();

/** The width of the widest label at its largest size, measured once. */
function widestLabel(units: Units): number {
  let width = widths.get(units);
  if (width === undefined) {
    const font = { size: labelSize(LARGEST_CELL), weight: BOLD };
    width = units.shown.reduce((most, text) => Math.max(most, textWidth(isolated(shortLabel(text)), font)), 20);
    widths.set(units, width);
  }
  return Math.min(LONGEST_LABEL, width);
}

/** The room that everything around the cells needs. */
export function surroundings({ queries, keys, ownBars }: Pick<MapContent, "queries" | "keys" | "ownBars">): {
  rowLabels: number;
  columnLabels: number;
  side: number;
  header: number;
} {
  return {
    rowLabels: widestLabel(queries),
    columnLabels: widestLabel(keys),
    side: ownBars ? OWN_BARS.gap + OWN_BARS.width + OWN_BARS.number : 0,
    header: groupsOf(keys).length > 1 ? GROUP_HEADER : 0,
  };
}

export function mapMarks(at: Layout, content: MapContent): Mark[] {
  const plot = { x: at.left, y: at.top, width: at.plotWidth, height: at.plotHeight };
  const { ink, cells, ownBars } = content;
  const cellMarks: Mark[] = [
    { kind: "rect", ...plot, fill: ink.hatch },
    {
      kind: "bitmap",
      bitmap: cells,
      x: at.left - at.scrollX,
      y: at.top - at.scrollY,
      width: at.columns * at.cell,
      height: at.rows * at.cell,
    },
    ...(at.cell >= SMALLEST_WITH_GAPS ? gapMarks(at, ink.panel) : []),
    ...groupLines(at, content),
  ];
  return [
    { kind: "group", clip: plot, marks: cellMarks },
    rowLabels(at, content),
    columnLabels(at, content),
    ...groupNameMarks(at, content),
    ...(ownBars ? ownBarMarks(at, ink, ownBars) : []),
  ];
}

/** At the right of every row a bar: the share of its own token, which is not in the map. */
function ownBarMarks(at: Layout, ink: Ink, shares: Float32Array): Mark[] {
  const x = at.left + at.plotWidth + OWN_BARS.gap;
  const gap = at.cell >= SMALLEST_WITH_GAPS ? 2 : 0;
  const edge = (row: number): number => Math.round(at.top - at.scrollY + row * at.cell);
  const bars = Array.from(shares).flatMap((share, row): Mark[] => {
    const y = edge(row) + gap;
    if (y < at.top - at.cell || y > at.top + at.plotHeight) return [];
    // Bars of thin rows touch, at whole pixels, so that they make no pattern of their own.
    const height = Math.max(1, edge(row + 1) - gap - y);
    const width = Number.isNaN(share) ? 0 : OWN_BARS.width * Math.min(1, share);
    return [
      { kind: "rect", x, y, width: OWN_BARS.width, height, fill: ink.hatch },
      { kind: "rect", class: "own", x, y, width, height, fill: ink.muted },
    ];
  });
  const clip = { x, y: at.top, width: OWN_BARS.width + OWN_BARS.number, height: at.plotHeight };
  const numbers =
    at.cell < SMALLEST_NUMBERED
      ? []
      : Array.from(shares).flatMap((share, row): Mark[] => {
          const y = edge(row) + at.cell / 2;
          const size = Math.min(10.5, at.cell - 2);
          const place = { x: x + OWN_BARS.width + 4, y, size, baseline: "middle" } as const;
          return Number.isNaN(share)
            ? []
            : [{ kind: "text", ...place, text: `${Math.round(100 * share)} %`, fill: ink.muted }];
        });
  const name = { x, y: at.top - 3, size: 10.5, fill: ink.muted, baseline: "bottom" } as const;
  return [
    { kind: "group", clip, marks: [...bars, ...numbers] },
    {
      kind: "text",
      ...name,
      text: "own token",
      title: "The share of the row that is the own token, left out of the map",
    },
  ];
}

function gapMarks(at: Layout, fill: string): Mark[] {
  const marks: Mark[] = [];
  const [right, bottom] = [at.left + at.plotWidth, at.top + at.plotHeight];
  for (let x = at.left - (at.scrollX % at.cell) - 1; x < right; x += at.cell)
    marks.push({ kind: "rect", x, y: at.top, width: 1, height: at.plotHeight, fill });
  for (let y = at.top - (at.scrollY % at.cell) - 1; y < bottom; y += at.cell)
    marks.push({ kind: "rect", x: at.left, y, width: at.plotWidth, height: 1, fill });
  return marks;
}

/** Stretches of keys of one group: [name, first, count]. */
export function groupsOf(keys: Units): [string, number, number][] {
  const groups: [string, number, number][] = [];
  keys.group.forEach((name, index) => {
    const last = groups[groups.length - 1];
    if (last && last[0] === name) last[2] += 1;
    else groups.push([name, index, 1]);
  });
  return groups;
}

/** Lines between groups of keys, and between groups of queries. */
function groupLines(at: Layout, { queries, keys, ink }: MapContent): Mark[] {
  const line = (box: (from: number, size: number) => Box, place: number): Mark[] => [
    { kind: "rect", ...box(place - 3, 5), fill: ink.panel },
    { kind: "rect", ...box(place - 1, 1), fill: ink.accent },
  ];
  const upright = (x: number, width: number): Box => ({ x, y: at.top, width, height: at.plotHeight });
  const level = (y: number, height: number): Box => ({ x: at.left, y, width: at.plotWidth, height });
  const starts = (units: Units): number[] =>
    groupsOf(units)
      .slice(1)
      .map(([, first]) => first * at.cell);
  return [
    ...starts(keys).flatMap((start) => line(upright, at.left - at.scrollX + start)),
    ...starts(queries).flatMap((start) => line(level, at.top - at.scrollY + start)),
  ];
}

/** Whether a label has no room where only some have one, and the selected one always. */
function isCrowded(index: number, selected: number, step: number): boolean {
  if (index === selected) return false;
  return index % step !== 0 || (step > 1 && Math.abs(index - selected) < step);
}

/** Font and colour of the label of a row or column. */
function labelStyle(
  index: number,
  units: Units,
  { cell, ink, emphasised }: { cell: number; ink: Ink; emphasised: boolean },
): Pick<TextMark, "kind" | "text" | "size" | "fill" | "weight"> {
  return {
    kind: "text",
    text: isolated(shortLabel(units.shown[index] ?? "")),
    size: labelSize(cell),
    fill: emphasised ? ink.accent : units.special[index] ? ink.muted : ink.text,
    ...(emphasised ? { weight: BOLD } : {}),
  };
}

function rowLabels(at: Layout, { queries, selected, ink, matches }: MapContent): GroupMark {
  const clip = { x: 0, y: at.top - HALF_A_LABEL, width: at.left, height: at.plotHeight + 2 * HALF_A_LABEL };
  const marks: Mark[] = [];
  for (let row = 0; row < at.rows; row++) {
    const y = at.top - at.scrollY + (row + 0.5) * at.cell;
    if (y < at.top - at.cell || y > at.top + at.plotHeight + at.cell) continue;
    const isMatch = matches.rows.has(row);
    if (!isMatch && isCrowded(row, selected.row, at.labelStep)) continue;
    const emphasised = isMatch || row === selected.row;
    const style = labelStyle(row, queries, { cell: at.cell, ink, emphasised });
    marks.push({ ...style, x: at.left - 6, y, anchor: "end", baseline: "middle" });
  }
  return { kind: "group", clip, marks };
}

function columnLabels(at: Layout, { keys, selected, ink, matches }: MapContent): GroupMark {
  const clip = { x: at.left - 2, y: 0, width: at.width - at.left, height: at.top };
  const marks: Mark[] = [];
  for (let column = 0; column < at.columns; column++) {
    const x = at.left - at.scrollX + (column + 0.5) * at.cell;
    if (x < at.left || x > at.left + at.plotWidth) continue;
    const isMatch = matches.columns.has(column);
    if (!isMatch && isCrowded(column, selected.column, at.labelStep)) continue;
    const emphasised = isMatch || column === selected.column;
    const style = labelStyle(column, keys, { cell: at.cell, ink, emphasised });
    marks.push({ ...style, x, y: at.top - 6, baseline: "middle", angle: at.angle });
  }
  return { kind: "group", clip, marks };
}

const GROUP_FONT = { size: 11, weight: BOLD };
const GROUP_GAP = 8;
/** Names of a group, the longest first: the first one that fits is drawn. */
const GROUP_NAMES: Record<string, string[]> = {
  source: ["source (encoder)", "source"],
  target: ["target (decoder)", "target"],
};

function groupNameMarks(at: Layout, { keys, ink }: MapContent): Mark[] {
  const groups = groupsOf(keys);
  if (groups.length < 2) return [];
  const names = groupNames(at, groups, (text) => textWidth(text, GROUP_FONT));
  return names.map(({ name, x }) => ({
    kind: "text",
    x,
    y: 0,
    text: name,
    fill: ink.muted,
    baseline: "top",
    ...GROUP_FONT,
  }));
}

/** The names of groups that are in view and where they begin: the longest that ends before the next, or none. */
export function groupNames(
  at: Pick<Layout, "left" | "scrollX" | "cell" | "plotWidth" | "width">,
  groups: readonly [string, number, number][],
  widthOf: (text: string) => number,
): { name: string; x: number }[] {
  const shown = groups
    .map(([group, first]) => ({ group, x: at.left - at.scrollX + first * at.cell + 2 }))
    .filter(({ x }) => x >= at.left - 2 && x < at.left + at.plotWidth);
  return shown.flatMap(({ group, x }, index) => {
    const end = shown[index + 1] ? shown[index + 1]!.x - GROUP_GAP : at.width;
    const name = (GROUP_NAMES[group] ?? [group]).find((text) => x + widthOf(text) <= end);
    return name === undefined ? [] : [{ name, x }];
  });
}

/** The selected row and cell, and the cell under the pointer with its row and column. */
export function cursorMarks(at: Layout, selected: Cell, hovered: Cell | null, ink: Ink): Mark[] {
  const clip = { x: at.left - 2, y: at.top - 2, width: at.plotWidth + 4, height: at.plotHeight + 4 };
  const size = Math.max(2, at.cell);
  const x = (column: number): number => at.left - at.scrollX + column * at.cell - 0.5;
  const y = (row: number): number => at.top - at.scrollY + row * at.cell - 0.5;
  const frame = (box: Box, stroke: string, lineWidth: number, opacity = 1): Mark => ({
    kind: "rect",
    ...box,
    stroke,
    lineWidth,
    opacity,
  });
  const cellBox = ({ row, column }: Cell): Box => ({ x: x(column), y: y(row), width: size, height: size });
  const marks: Mark[] = [];
  if (selected.row >= 0) {
    const row = { x: at.left - 0.75, y: y(selected.row) - 0.5, width: at.plotWidth + 0.5, height: size + 1 };
    marks.push(frame(row, ink.accent, 1.5));
    if (selected.column >= 0) marks.push(frame(cellBox(selected), ink.accent, 2.5));
  }
  if (hovered) {
    const row = { x: at.left - 0.5, y: y(hovered.row), width: at.plotWidth, height: size };
    const column = { x: x(hovered.column), y: at.top - 0.5, width: size, height: at.plotHeight };
    if (hovered.row >= 0) marks.push(frame(row, ink.text, 1, 0.45));
    if (hovered.column >= 0) marks.push(frame(column, ink.text, 1, 0.45));
    if (hovered.row >= 0 && hovered.column >= 0) marks.push(frame(cellBox(hovered), ink.text, 2));
  }
  return [{ kind: "group", clip, marks }];
}
