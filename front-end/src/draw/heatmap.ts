/** The heat map on screen: fits the room it has, zooms and scrolls, and reports which cell is hovered or chosen. */

import type { Lifetime } from "../lifetime";
import type { Matrix } from "../model/matrix";
import { clamp } from "../model/state";
import type { Units } from "../model/tokens";
import type { Greyed, Palette } from "./colour";
import { chromeOf, h, sized } from "./dom";
import { type Cell, cellAt, type Layout, layout, reveal } from "./geometry";
import type { Ink } from "./ink";
import { cellsOf, cursorMarks, type Matches, mapMarks, surroundings } from "./mapmarks";
import { paintMarks } from "./marks";
import { Minimap, type Stretch } from "./minimap";

export interface HeatMapContent {
  matrix: Matrix;
  palette: Palette;
  queries: Units;
  keys: Units;
  selected: Cell;
  ink: Ink;
  label: string;
  /** Own tokens that are grey, or whose shares are drawn next to the map because they are not in it. */
  grey: Greyed | null;
  ownBars: Float32Array | null;
  matches: Matches;
}

export interface HeatMapEvents {
  hover(cell: Cell | null, x: number, y: number): void;
  choose(cell: Cell): void;
}

const SMALLEST_HEIGHT = 380;
const LARGEST_ZOOM = 40;
const LARGEST_HEIGHT = 1200;
/** Pixels between the card and the end of the window. */
const BELOW = 12;

export class HeatMap {
  readonly element: HTMLElement;
  private readonly base: HTMLCanvasElement;
  private readonly marks: HTMLCanvasElement;
  private content: HeatMapContent | null = null;
  private cells: HTMLCanvasElement | null = null;
  private at: Layout | null = null;
  private hovered: Cell | null = null;
  private zoom = 1;
  private scroll = { x: 0, y: 0 };
  private drag: { x: number; y: number; moved: boolean } | null = null;
  private drawnWidth = 0;
  private readonly minimap = new Minimap((to) => this.look(to));

  constructor(
    private readonly events: HeatMapEvents,
    life: Lifetime,
  ) {
    this.base = h("canvas", { class: "base", "aria-hidden": "true" });
    this.marks = h("canvas", {
      class: "marks",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "heat map",
    });
    this.element = h("div", { class: "heatmap" }, this.base, this.marks, this.minimap.element);
    this.marks.addEventListener("pointermove", (event) => this.moved(event));
    this.marks.addEventListener("pointerleave", () => this.point(null, 0, 0));
    this.marks.addEventListener("pointerdown", (event) => this.pressed(event));
    this.marks.addEventListener("pointerup", (event) => this.released(event));
    this.marks.addEventListener("wheel", (event) => this.wheeled(event), { passive: false });
    this.marks.addEventListener("dblclick", (event) =>
      this.setZoom(this.zoom * 2, { x: event.offsetX, y: event.offsetY }),
    );
    this.marks.addEventListener("keydown", (event) => this.typed(event));
    life.observeSize(this.element, () => {
      if (Math.abs(this.element.clientWidth - this.drawnWidth) > 1) this.draw();
    });
  }

  get zoomed(): number {
    return this.zoom;
  }

  show(content: HeatMapContent): void {
    const shape = this.content && [this.content.matrix.rows, this.content.matrix.columns].join();
    if (shape !== [content.matrix.rows, content.matrix.columns].join()) this.scroll = { x: 0, y: 0 };
    if (this.content?.matrix !== content.matrix || this.content.palette !== content.palette) this.cells = null;
    const { row, column } = content.selected;
    const elsewhere = this.content?.selected.row !== row || this.content.selected.column !== column;
    this.content = content;
    if (elsewhere && this.at && this.zoom > 1) {
      const { scrollX, scrollY } = reveal(
        { ...this.at, scrollX: this.scroll.x, scrollY: this.scroll.y },
        { row, column },
      );
      this.scroll = { x: scrollX, y: scrollY };
    }
    this.draw();
  }

  /** Show a stretch of the map, as large as it fits. */
  private look({ row, column, rows, columns }: Stretch): void {
    const fitted = this.plan(1);
    if (!this.at || !fitted) return;
    const room = { width: fitted.width - fitted.left - 12, height: this.height - fitted.top };
    const cell = Math.min(room.width / Math.max(1, columns), room.height / Math.max(1, rows));
    const same = Math.abs(rows * this.at.cell - this.at.plotHeight) < 1;
    if (!same) this.zoom = clamp(cell / fitted.cell, 1, LARGEST_ZOOM);
    const after = this.plan()!;
    this.scroll = { x: column * after.cell, y: row * after.cell };
    this.draw();
  }

  /** What the window leaves for the map, with its legend in view. */
  private get height(): number {
    const room = window.innerHeight - chromeOf(this.element) - BELOW;
    return Math.max(SMALLEST_HEIGHT, Math.min(room, LARGEST_HEIGHT));
  }

  /** Highlight another cell (from the other pane, or from a list). */
  highlight(cell: Cell | null): void {
    this.hovered = cell;
    this.drawCursor();
  }

  setZoom(zoom: number, around?: { x: number; y: number }): void {
    if (!this.at) return;
    const before = this.at;
    const point = around ?? { x: before.left + before.plotWidth / 2, y: before.top + before.plotHeight / 2 };
    const column = (point.x - before.left + before.scrollX) / before.cell;
    const row = (point.y - before.top + before.scrollY) / before.cell;
    this.zoom = clamp(zoom, 1, LARGEST_ZOOM);
    const after = this.plan();
    if (!after) return;
    this.scroll = { x: column * after.cell - (point.x - after.left), y: row * after.cell - (point.y - after.top) };
    this.draw();
  }

  private plan(zoom = this.zoom): Layout | null {
    const { content } = this;
    if (!content) return null;
    return layout({
      width: this.element.clientWidth,
      height: this.height,
      rows: content.matrix.rows,
      columns: content.matrix.columns,
      ...surroundings(content),
      zoom,
      scrollX: this.scroll.x,
      scrollY: this.scroll.y,
    });
  }

  private draw(): void {
    const { content } = this;
    if (!content || this.element.clientWidth === 0) return;
    const begun = performance.now();
    this.drawnWidth = this.element.clientWidth;
    this.at = this.plan()!;
    this.scroll = { x: this.at.scrollX, y: this.at.scrollY };
    this.cells ??= cellsOf(content.matrix, content.palette, content.grey);
    const { at, cells } = this;
    this.element.style.height = `${at.height}px`;
    paintMarks(sized(this.base, at.width, at.height), mapMarks(at, { ...content, cells }));
    this.marks.setAttribute("aria-label", content.label);
    this.drawCursor();
    this.minimap.show(at, cells, content.ink);
    this.element.dataset.drawn = (performance.now() - begun).toFixed(1);
    this.element.dataset.layout = JSON.stringify([at.left, at.top, at.cell]);
  }

  private drawCursor(): void {
    if (!this.at || !this.content) return;
    const { selected, ink } = this.content;
    const context = sized(this.marks, this.at.width, this.at.height);
    paintMarks(context, cursorMarks(this.at, selected, this.hovered, ink));
  }

  private point(cell: Cell | null, x: number, y: number): void {
    this.hovered = cell;
    this.drawCursor();
    this.events.hover(cell, x, y);
  }

  private moved(event: PointerEvent): void {
    if (!this.at) return;
    if (this.drag && this.zoom > 1) {
      const [dx, dy] = [event.offsetX - this.drag.x, event.offsetY - this.drag.y];
      if (this.drag.moved || Math.hypot(dx, dy) > 4) {
        this.scroll = { x: this.scroll.x - dx, y: this.scroll.y - dy };
        this.drag = { x: event.offsetX, y: event.offsetY, moved: true };
        this.draw();
        return;
      }
    }
    this.point(cellAt(this.at, event.offsetX, event.offsetY), event.offsetX, event.offsetY);
  }

  private pressed(event: PointerEvent): void {
    this.drag = { x: event.offsetX, y: event.offsetY, moved: false };
    this.marks.setPointerCapture(event.pointerId);
  }

  private released(event: PointerEvent): void {
    const dragged = this.drag?.moved ?? false;
    this.drag = null;
    const cell = this.at && !dragged ? cellAt(this.at, event.offsetX, event.offsetY) : null;
    if (cell) this.events.choose(cell);
  }

  private wheeled(event: WheelEvent): void {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.setZoom(this.zoom * Math.exp(-event.deltaY / 250), { x: event.offsetX, y: event.offsetY });
    } else if (this.zoom > 1) {
      event.preventDefault();
      this.scroll = { x: this.scroll.x + event.deltaX, y: this.scroll.y + event.deltaY };
      this.draw();
    }
  }

  private typed(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.press(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Handle a key; whether it was handled. */
  press(key: string): boolean {
    if (!this.at || !this.content) return false;
    const zoom = ZOOM_KEYS[key];
    if (zoom !== undefined) {
      this.setZoom(zoom === 0 ? 1 : this.zoom * zoom);
      return true;
    }
    const step = STEPS[key];
    if (!step) return false;
    const { rows, columns } = this.at;
    const { row, column } = this.content.selected;
    const start = { row: Math.max(0, row), column };
    if (column < 0 && step.column !== 0) start.column = step.column > 0 ? -1 : columns;
    const target = {
      row: clamp(start.row + step.row, 0, rows - 1),
      column: start.column < 0 && step.column === 0 ? -1 : clamp(start.column + step.column, 0, columns - 1),
    };
    this.events.choose(target);
    return true;
  }
}

const ZOOM_KEYS: Record<string, number> = { "+": 1.5, "=": 1.5, "-": 1 / 1.5, "0": 0 };
const FAR = 1e6;
const STEPS: Record<string, Cell> = {
  ArrowUp: { row: -1, column: 0 },
  ArrowDown: { row: 1, column: 0 },
  ArrowLeft: { row: 0, column: -1 },
  ArrowRight: { row: 0, column: 1 },
  Home: { row: 0, column: -FAR },
  End: { row: 0, column: FAR },
  PageUp: { row: -10, column: 0 },
  PageDown: { row: 10, column: 0 },
};
