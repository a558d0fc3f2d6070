/** Draws a heat map onto a canvas: cells, labels, groups and what is selected. Owns no state and handles no events. */

import type { Matrix } from "../model/matrix";
import type { Units } from "../model/tokens";
import { isolated, shortLabel } from "../model/tokens";
import { type Greyed, type Palette, paint } from "./colour";
import { type Cell, type Layout, labelSize } from "./geometry";

export interface Ink {
  text: string;
  muted: string;
  line: string;
  accent: string;
  panel: string;
  hatch: string;
}

export const FONT = "Inter, 'SF Pro Text', 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

/** Room for the bars of own tokens, at the right of the map. */
export const BESIDE = { gap: 8, width: 40 };

/** By how much the label of the first or last row may stand out beyond a thin row. */
const HALF_A_LABEL = 6;

export function labelFont(cell: number, bold = false): string {
  return `${bold ? "600 " : ""}${labelSize(cell)}px ${FONT}`;
}

/** The cells as a canvas of one pixel each, to be drawn at any size. */
export function cellsOf(matrix: Matrix, colours: Palette, grey: Greyed | null = null): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, matrix.columns);
  canvas.height = Math.max(1, matrix.rows);
  canvas.getContext("2d")!.putImageData(paint(matrix, colours, grey), 0, 0);
  return canvas;
}

export interface Scene {
  layout: Layout;
  cells: HTMLCanvasElement;
  queries: Units;
  keys: Units;
  selected: Cell;
  ink: Ink;
  /** Rows and columns whose labels are looked for. */
  matches: Matches;
  /** What part of every row its own token is, to be drawn beside it; null where own tokens are in the map. */
  beside: Float32Array | null;
}

export interface Matches {
  rows: ReadonlySet<number>;
  columns: ReadonlySet<number>;
}

export const NO_MATCHES: Matches = { rows: new Set(), columns: new Set() };

export function drawMap(context: CanvasRenderingContext2D, scene: Scene): void {
  const { layout: at, cells, ink } = scene;
  context.save();
  context.beginPath();
  context.rect(at.left, at.top, at.plotWidth, at.plotHeight);
  context.clip();
  context.fillStyle = ink.hatch;
  context.fillRect(at.left, at.top, at.plotWidth, at.plotHeight);
  context.imageSmoothingEnabled = at.cell * (window.devicePixelRatio || 1) < 1;
  context.drawImage(cells, at.left - at.scrollX, at.top - at.scrollY, at.columns * at.cell, at.rows * at.cell);
  if (at.cell >= 9) drawGaps(context, at, ink.panel);
  drawGroups(context, scene);
  context.restore();
  drawRowLabels(context, scene);
  drawColumnLabels(context, scene);
  if (scene.beside) drawBeside(context, scene, scene.beside);
}

/** At the right of every row a bar: the share of its own token, which is not in the map. */
function drawBeside(context: CanvasRenderingContext2D, { layout: at, ink }: Scene, shares: Float32Array): void {
  const left = at.left + at.plotWidth + BESIDE.gap;
  context.save();
  context.beginPath();
  context.rect(left, at.top, BESIDE.width, at.plotHeight);
  context.clip();
  const gap = at.cell >= 9 ? 2 : 0;
  const edge = (row: number): number => Math.round(at.top - at.scrollY + row * at.cell);
  shares.forEach((share, row) => {
    const y = edge(row) + gap;
    if (y < at.top - at.cell || y > at.top + at.plotHeight) return;
    // Bars of thin rows touch, at whole pixels, so that they make no pattern of their own.
    const height = Math.max(1, edge(row + 1) - gap - y);
    context.fillStyle = ink.hatch;
    context.fillRect(left, y, BESIDE.width, height);
    context.fillStyle = ink.muted;
    if (!Number.isNaN(share)) context.fillRect(left, y, BESIDE.width * Math.min(1, share), height);
  });
  context.restore();
  context.font = `10.5px ${FONT}`;
  context.fillStyle = ink.muted;
  context.textAlign = "left";
  context.textBaseline = "bottom";
  context.fillText("own", left, at.top - 3);
}

function drawGaps(context: CanvasRenderingContext2D, at: Layout, colour: string): void {
  context.fillStyle = colour;
  const right = at.left + at.plotWidth;
  const bottom = at.top + at.plotHeight;
  for (let x = at.left - (at.scrollX % at.cell) - 1; x < right; x += at.cell)
    context.fillRect(x, at.top, 1, at.plotHeight);
  for (let y = at.top - (at.scrollY % at.cell) - 1; y < bottom; y += at.cell)
    context.fillRect(at.left, y, at.plotWidth, 1);
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

function drawGroups(context: CanvasRenderingContext2D, { layout: at, keys, ink }: Scene): void {
  for (const [, first] of groupsOf(keys).slice(1)) {
    context.fillStyle = ink.panel;
    context.fillRect(at.left - at.scrollX + first * at.cell - 3, at.top, 5, at.plotHeight);
    context.fillStyle = ink.accent;
    context.fillRect(at.left - at.scrollX + first * at.cell - 1, at.top, 1, at.plotHeight);
  }
}

/** Whether a label has no room where only some have one, and the selected one always. */
function isCrowded(place: number, selected: number, step: number): boolean {
  if (place === selected) return false;
  return place % step !== 0 || (step > 1 && Math.abs(place - selected) < step);
}

function drawRowLabels(
  context: CanvasRenderingContext2D,
  { layout: at, queries, selected, ink, matches }: Scene,
): void {
  context.save();
  context.beginPath();
  context.rect(0, at.top - HALF_A_LABEL, at.left, at.plotHeight + 2 * HALF_A_LABEL);
  context.clip();
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (let row = 0; row < at.rows; row++) {
    const y = at.top - at.scrollY + (row + 0.5) * at.cell;
    const isSelected = row === selected.row;
    if (y < at.top - at.cell || y > at.top + at.plotHeight + at.cell) continue;
    const isMatch = matches.rows.has(row);
    if (!isMatch && isCrowded(row, selected.row, at.labelStep)) continue;
    context.font = labelFont(at.cell, isSelected || isMatch);
    context.fillStyle = isSelected || isMatch ? ink.accent : queries.special[row] ? ink.muted : ink.text;
    context.fillText(isolated(shortLabel(queries.shown[row] ?? "")), at.left - 6, y);
  }
  context.restore();
}

function drawColumnLabels(
  context: CanvasRenderingContext2D,
  { layout: at, keys, selected, ink, matches }: Scene,
): void {
  context.save();
  context.beginPath();
  context.rect(at.left - 2, 0, at.width - at.left, at.top);
  context.clip();
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (let column = 0; column < at.columns; column++) {
    const x = at.left - at.scrollX + (column + 0.5) * at.cell;
    const isSelected = column === selected.column;
    if (x < at.left || x > at.left + at.plotWidth) continue;
    const isMatch = matches.columns.has(column);
    if (!isMatch && isCrowded(column, selected.column, at.labelStep)) continue;
    context.save();
    context.translate(x, at.top - 6);
    context.rotate(at.angle);
    context.font = labelFont(at.cell, isSelected || isMatch);
    context.fillStyle = isSelected || isMatch ? ink.accent : keys.special[column] ? ink.muted : ink.text;
    context.fillText(isolated(shortLabel(keys.shown[column] ?? "")), 0, 0);
    context.restore();
  }
  context.restore();
  drawGroupNames(context, at, keys, ink);
}

const GROUP_FONT = `600 11px ${FONT}`;
const GROUP_GAP = 8;
/** From the longest to the shortest that is said of a group, as there is room. */
const GROUP_NAMES: Record<string, string[]> = {
  source: ["source (encoder)", "source"],
  target: ["target (decoder)", "target"],
};

function drawGroupNames(context: CanvasRenderingContext2D, at: Layout, keys: Units, ink: Ink): void {
  const groups = groupsOf(keys);
  if (groups.length < 2) return;
  context.font = GROUP_FONT;
  context.fillStyle = ink.muted;
  context.textAlign = "left";
  context.textBaseline = "top";
  for (const { name, x } of groupNames(at, groups, (text) => context.measureText(text).width))
    context.fillText(name, x, 0);
}

/** The names of groups that are in view and where they begin: as long as they can be before the next, or none. */
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

/** The selected row, and the cell under the pointer with its row and column. */
export function drawMarks(
  context: CanvasRenderingContext2D,
  at: Layout,
  selected: Cell,
  hovered: Cell | null,
  ink: Ink,
): void {
  context.save();
  context.beginPath();
  context.rect(at.left - 2, at.top - 2, at.plotWidth + 4, at.plotHeight + 4);
  context.clip();
  const x = (column: number): number => at.left - at.scrollX + column * at.cell;
  const y = (row: number): number => at.top - at.scrollY + row * at.cell;
  const size = Math.max(2, at.cell);
  context.lineWidth = 1.5;
  if (selected.row >= 0) {
    context.strokeStyle = ink.accent;
    context.strokeRect(at.left - 0.75, y(selected.row) - 1, at.plotWidth + 0.5, size + 1);
  }
  if (selected.row >= 0 && selected.column >= 0) {
    context.lineWidth = 2.5;
    context.strokeRect(x(selected.column) - 0.5, y(selected.row) - 0.5, size, size);
  }
  if (hovered) {
    context.lineWidth = 1;
    context.strokeStyle = ink.text;
    context.globalAlpha = 0.45;
    if (hovered.row >= 0) context.strokeRect(at.left - 0.5, y(hovered.row) - 0.5, at.plotWidth, size);
    if (hovered.column >= 0) context.strokeRect(x(hovered.column) - 0.5, at.top - 0.5, size, at.plotHeight);
    context.globalAlpha = 1;
    if (hovered.row >= 0 && hovered.column >= 0) {
      context.lineWidth = 2;
      context.strokeRect(x(hovered.column) - 0.5, y(hovered.row) - 0.5, size, size);
    }
  }
  context.restore();
}
