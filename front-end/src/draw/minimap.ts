/** The whole map, small, in the free corner of the large one: where one is, a brush to go elsewhere, a frame to move. */
import { h, sized } from "./dom";
import type { Layout } from "./geometry";
import type { Ink } from "./ink";
import { paintMarks } from "./marks";

/** A stretch of rows and columns, not necessarily whole ones. */
export interface Stretch {
  row: number;
  column: number;
  rows: number;
  columns: number;
}

const SMALLEST = 34;
const LARGEST = 132;
/** Maps with fewer rows and columns are seen at one glance. */
const FEW = 40;
/** A brush smaller than this many pixels is a click. */
const CLICK = 4;

type Drag = { kind: "move"; row: number; column: number } | { kind: "brush"; x: number; y: number };

export class Minimap {
  readonly element = h("canvas", {
    class: "minimap",
    "aria-hidden": "true",
    title: "Drag to look at a part of the map",
  });
  private at: Layout | null = null;
  private size = 0;
  private drag: Drag | null = null;
  private brush: Stretch | null = null;
  private redraw: () => void = () => undefined;

  constructor(private readonly go: (to: Stretch) => void) {
    this.element.addEventListener("pointerdown", (event) => this.pressed(event));
    this.element.addEventListener("pointermove", (event) => this.moved(event));
    this.element.addEventListener("pointerup", (event) => this.released(event));
  }

  show(at: Layout, cells: HTMLCanvasElement, ink: Ink): void {
    this.at = at;
    const room = Math.min(at.left - 12, at.top - 8, LARGEST);
    this.element.hidden = room < SMALLEST || Math.max(at.rows, at.columns) < FEW;
    if (this.element.hidden) return;
    this.size = room;
    this.element.style.left = `${at.left - room - 6}px`;
    this.element.style.top = `${at.top - room - 4}px`;
    this.redraw = () => this.draw(cells, ink);
    this.redraw();
  }

  private get scale(): number {
    return this.size / Math.max(this.at!.rows, this.at!.columns);
  }

  /** What the large map shows. */
  private get frame(): Stretch {
    const { scrollX, scrollY, plotWidth, plotHeight, cell } = this.at!;
    return { row: scrollY / cell, column: scrollX / cell, rows: plotHeight / cell, columns: plotWidth / cell };
  }

  private draw(cells: HTMLCanvasElement, ink: Ink): void {
    const { scale, size } = this;
    const { rows, columns } = this.at!;
    const context = sized(this.element, size, size);
    const whole = { x: 0, y: 0, width: columns * scale, height: rows * scale };
    const shown = this.brush ?? this.frame;
    const frame = {
      x: shown.column * scale + 0.75,
      y: shown.row * scale + 0.75,
      width: shown.columns * scale - 1.5,
      height: shown.rows * scale - 1.5,
    };
    paintMarks(context, [
      { kind: "rect", ...whole, fill: ink.hatch },
      { kind: "bitmap", ...whole, bitmap: cells },
      { kind: "rect", ...frame, stroke: ink.accent, lineWidth: 1.5 },
    ]);
  }

  private pressed(event: PointerEvent): void {
    const [column, row] = [event.offsetX / this.scale, event.offsetY / this.scale];
    const { frame } = this;
    const zoomed = frame.rows < this.at!.rows - 0.5 || frame.columns < this.at!.columns - 0.5;
    const inside = row >= frame.row && row <= frame.row + frame.rows;
    const within = inside && column >= frame.column && column <= frame.column + frame.columns;
    this.drag =
      zoomed && within
        ? { kind: "move", row: row - frame.row, column: column - frame.column }
        : { kind: "brush", x: event.offsetX, y: event.offsetY };
    this.element.setPointerCapture(event.pointerId);
  }

  private moved(event: PointerEvent): void {
    if (!this.drag) return;
    if (this.drag.kind === "move") {
      const [column, row] = [event.offsetX / this.scale, event.offsetY / this.scale];
      this.go({ ...this.frame, row: row - this.drag.row, column: column - this.drag.column });
      return;
    }
    const { x, y } = this.drag;
    this.brush = {
      column: Math.min(x, event.offsetX) / this.scale,
      row: Math.min(y, event.offsetY) / this.scale,
      columns: Math.abs(event.offsetX - x) / this.scale,
      rows: Math.abs(event.offsetY - y) / this.scale,
    };
    this.redraw();
  }

  private released(event: PointerEvent): void {
    const { drag, brush } = this;
    this.drag = null;
    this.brush = null;
    if (drag?.kind !== "brush") return;
    const small = !brush || Math.max(brush.rows, brush.columns) * this.scale < CLICK;
    if (!small) {
      this.go(brush);
      return;
    }
    const { rows, columns } = this.frame;
    const [column, row] = [event.offsetX / this.scale, event.offsetY / this.scale];
    this.go({ rows, columns, row: row - rows / 2, column: column - columns / 2 });
  }
}
