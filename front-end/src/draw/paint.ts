/** Draws a heat map onto a canvas: cells, labels, groups and what is selected. Owns no state and handles no events. */

import type { Matrix } from "../model/matrix";
import type { Units } from "../model/tokens";
import { isolated, shortLabel } from "../model/tokens";
import { type Palette, paint } from "./colour";
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

export function labelFont(cell: number, bold = false): string {
  return `${bold ? "600 " : ""}${Math.max(9, Math.min(12.5, cell - 2))}px ${FONT}`;
}

/** The cells as a canvas of one pixel each, to be drawn at any size. */
export function cellsOf(matrix: Matrix, colours: Palette): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, matrix.columns);
  canvas.height = Math.max(1, matrix.rows);
  canvas.getContext("2d")!.putImageData(paint(matrix, colours), 0, 0);
  return canvas;
}

export interface Scene {
  layout: Layout;
  cells: HTMLCanvasElement;
  queries: Units;
  keys: Units;
  selected: Cell;
  ink: Ink;
}

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

function drawRowLabels(context: CanvasRenderingContext2D, { layout: at, queries, selected, ink }: Scene): void {
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
    if (!isSelected && (row % at.labelStep !== 0 || (at.labelStep > 1 && Math.abs(row - selected.row) < at.labelStep)))
      continue;
    context.font = labelFont(at.cell, isSelected);
    context.fillStyle = isSelected ? ink.accent : queries.special[row] ? ink.muted : ink.text;
    context.fillText(isolated(shortLabel(queries.labels[row] ?? "")), at.left - 6, y);
  }
  context.restore();
}

function drawColumnLabels(context: CanvasRenderingContext2D, { layout: at, keys, selected, ink }: Scene): void {
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
    if (
      !isSelected &&
      (column % at.labelStep !== 0 || (at.labelStep > 1 && Math.abs(column - selected.column) < at.labelStep))
    )
      continue;
    context.save();
    context.translate(x, at.top - 6);
    context.rotate(at.angle);
    context.font = labelFont(at.cell, isSelected);
    context.fillStyle = isSelected ? ink.accent : keys.special[column] ? ink.muted : ink.text;
    context.fillText(isolated(shortLabel(keys.labels[column] ?? "")), 0, 0);
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
