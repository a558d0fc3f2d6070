/** Where the cells and labels of a heat map are, given the room there is. Pure arithmetic. */
import { clamp } from "../model/state";

export const LARGEST_CELL = 56;
const SMALLEST_LABEL = 9;
const ANGLED_FROM = 13;
const RIGHT_MARGIN = 10;
/** Angles of column labels. */
const SLANTED = -Math.PI / 3.2;
const UPRIGHT = -Math.PI / 2;
/** Labels are as large as rows allow, within bounds (in pixels). */
const LABEL_SIZES = { least: 9, most: 12.5 };

/** The font size of the labels of cells of some size. */
export function labelSize(cell: number): number {
  return Math.max(LABEL_SIZES.least, Math.min(LABEL_SIZES.most, cell - 2));
}

export interface Room {
  width: number;
  height: number;
  rows: number;
  columns: number;
  /** Widths in pixels of the widest row label and the widest column label, at the largest size of labels. */
  rowLabels: number;
  columnLabels: number;
  zoom: number;
  scrollX: number;
  scrollY: number;
  /** Room for what is drawn at the right of the map. */
  side: number;
  /** Room for the names of key groups above the column labels. */
  header: number;
}

export interface Layout {
  cell: number;
  left: number;
  top: number;
  width: number;
  height: number;
  plotWidth: number;
  plotHeight: number;
  scrollX: number;
  scrollY: number;
  /** Column labels are slanted where there is room, else upright. */
  angle: number;
  /** Every how many rows or columns has a label. */
  labelStep: number;
  rows: number;
  columns: number;
}

export function layout(room: Room): Layout {
  const slanted = fullest(room, SLANTED);
  const whole = slanted.cell >= ANGLED_FROM ? slanted : fullest(room, UPRIGHT);
  const cell = crisp(Math.min(whole.cell * room.zoom, Math.max(LARGEST_CELL, whole.cell)));
  const fitted = room.zoom > 1 ? plan(room, whole.angle, cell) : whole;
  const plotWidth = Math.min(fitted.plotWidth, cell * room.columns);
  const plotHeight = Math.min(fitted.plotHeight, cell * room.rows);
  const left = fitted.left + Math.floor((fitted.plotWidth - plotWidth) / 2);
  return {
    cell,
    left,
    top: fitted.top,
    width: room.width,
    height: Math.ceil(fitted.top + plotHeight + 2),
    plotWidth,
    plotHeight,
    scrollX: clamp(room.scrollX, 0, cell * room.columns - plotWidth),
    scrollY: clamp(room.scrollY, 0, cell * room.rows - plotHeight),
    angle: fitted.angle,
    labelStep: stepOf(cell),
    rows: room.rows,
    columns: room.columns,
  };
}

function stepOf(cell: number): number {
  return Math.max(1, Math.ceil(SMALLEST_LABEL / cell));
}

/** The layout in which cells have a given size, however much room that takes: for a figure of its own. */
export function layoutAt(cell: number, room: Omit<Room, "width" | "height" | "zoom" | "scrollX" | "scrollY">): Layout {
  const angle = cell >= ANGLED_FROM ? SLANTED : UPRIGHT;
  const { left, top, overhang } = margins(room, angle, cell);
  const [plotWidth, plotHeight] = [cell * room.columns, cell * room.rows];
  return {
    cell,
    left,
    top,
    width: Math.ceil(left + plotWidth + overhang),
    height: Math.ceil(top + plotHeight + 2),
    plotWidth,
    plotHeight,
    scrollX: 0,
    scrollY: 0,
    angle,
    labelStep: stepOf(cell),
    rows: room.rows,
    columns: room.columns,
  };
}

interface Plan {
  angle: number;
  left: number;
  top: number;
  cell: number;
  plotWidth: number;
  plotHeight: number;
}

/** The largest cells that fit: where they are small, so are their labels, which leaves more room for the cells. */
function fullest(room: Room, angle: number): Plan {
  const least = plan(room, angle, LARGEST_CELL);
  const most = plan(room, angle, least.cell);
  return plan(room, angle, most.cell);
}

/** Where everything is, with labels for cells of some size at the most. */
function plan(room: Room, angle: number, labelled: number): Plan {
  const { left, top, overhang } = margins(room, angle, labelled);
  const plotWidth = Math.max(40, room.width - left - overhang);
  const plotHeight = Math.max(40, room.height - top - 2);
  const cell = Math.min(LARGEST_CELL, plotWidth / Math.max(1, room.columns), plotHeight / Math.max(1, room.rows));
  return { angle, left, top, cell: crisp(cell), plotWidth, plotHeight };
}

/** The room around the cells, with labels for cells of some size. */
function margins(
  room: Pick<Room, "rowLabels" | "columnLabels" | "side" | "header">,
  angle: number,
  labelled: number,
): { left: number; top: number; overhang: number } {
  const shrunk = labelSize(labelled) / LABEL_SIZES.most;
  const columnLabels = room.columnLabels * shrunk;
  return {
    left: Math.ceil(room.rowLabels * shrunk) + 10,
    top: Math.ceil(columnLabels * Math.abs(Math.sin(angle))) + 12 + room.header,
    overhang: Math.max(RIGHT_MARGIN + room.side, columnLabels * Math.cos(angle) - 4),
  };
}

/** Cells of a whole number of pixels look crisp; very small ones cannot afford it. */
function crisp(cell: number): number {
  return cell >= 4 ? Math.floor(cell) : cell;
}

export interface Cell {
  row: number;
  column: number;
}

/** The cell under a point; what is beside a row counts for it (column -1), and a label above for its column (row -1). */
export function cellAt(at: Layout, x: number, y: number): Cell | null {
  const column = Math.floor((x - at.left + at.scrollX) / at.cell);
  const row = Math.floor((y - at.top + at.scrollY) / at.cell);
  const inColumns = x >= at.left && x < at.left + at.plotWidth && column < at.columns;
  const inRows = y >= at.top && y < at.top + at.plotHeight && row < at.rows;
  if (inRows && inColumns) return { row, column };
  if (inRows && !inColumns) return { row, column: -1 };
  if (inColumns && y < at.top) return { row: -1, column };
  return null;
}

/** The scroll position that brings a cell into view. */
export function reveal(at: Layout, cell: Cell): { scrollX: number; scrollY: number } {
  const within = (scroll: number, index: number, room: number): number =>
    index < 0 ? scroll : clamp(scroll, (index + 1) * at.cell - room, index * at.cell);
  return {
    scrollX: within(at.scrollX, cell.column, at.plotWidth),
    scrollY: within(at.scrollY, cell.row, at.plotHeight),
  };
}
