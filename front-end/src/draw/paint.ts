/** Draws a heat map onto a canvas: cells, labels, groups and what is selected. Owns no state and handles no events. */

import type { Matrix } from "../model/matrix";
import type { Units } from "../model/tokens";
import { isolated, shortLabel } from "../model/tokens";
import { type Greyed, type Palette, paint } from "./colour";
import type { Cell, Layout } from "./geometry";

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

export function labelFont(cell: number, bold = false): string {
  return `${bold ? "600 " : ""}${Math.max(9, Math.min(12.5, cell - 2))}px ${FONT}`;
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
  const height = Math.max(1, at.cell >= 9 ? at.cell - 4 : at.cell);
  shares.forEach((share, row) => {
    const y = at.top - at.scrollY + (row + 0.5) * at.cell - height / 2;
    if (y < at.top - at.cell || y > at.top + at.plotHeight) return;
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
  context.rect(0, at.top, at.left, at.plotHeight);
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

const GROUP_NAMES: Record<string, string> = { source: "source (encoder)", target: "target (decoder)" };

function drawGroupNames(context: CanvasRenderingContext2D, at: Layout, keys: Units, ink: Ink): void {
  const groups = groupsOf(keys);
  if (groups.length < 2) return;
  context.font = `600 11px ${FONT}`;
  context.fillStyle = ink.muted;
  context.textAlign = "left";
  context.textBaseline = "top";
  for (const [name, first] of groups) {
    const x = at.left - at.scrollX + first * at.cell + 2;
    if (x >= at.left - 2 && x < at.left + at.plotWidth) context.fillText(GROUP_NAMES[name] ?? name, x, 0);
  }
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
