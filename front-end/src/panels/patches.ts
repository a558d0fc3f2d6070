/** Patches over their image: what the chosen query took from every patch, and patches to choose as queries. */
import { shade } from "../draw/colour";
import { h, sized } from "../draw/dom";
import { picture } from "../draw/picture";
import { type View, valueAt } from "../draw/view";
import { type Context, Panel } from "./panel";

const SIZE = 300;

export class Patches extends Panel {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { class: "patches", tabindex: 0, role: "img" });
  private readonly strength = h("input", {
    type: "range",
    min: 0,
    max: 100,
    value: 70,
    "aria-label": "Strength of the overlay",
  });
  private view: View | null = null;

  constructor(private readonly context: Context) {
    super();
    this.element = h(
      "section",
      { class: "card" },
      h("header", {}, h("h2", {}, "Image"), h("label", { class: "strength" }, "overlay", this.strength)),
      this.canvas,
    );
    this.strength.addEventListener("input", () => this.draw());
    this.canvas.addEventListener("click", (event) => this.clicked(event));
  }

  update(view: View): void {
    this.view = view;
    this.draw();
  }

  private grid(): { rows: number; columns: number } {
    const { keys } = this.view!.lens.analysis;
    const ends = (keys.column ?? [0]).map((column, token) => column + (keys.count?.[token] ?? 1));
    return { rows: Math.max(...(keys.row ?? [0])) + 1, columns: Math.max(...ends) };
  }

  private draw(): void {
    const { view } = this;
    if (!view?.lens.analysis.picture) return;
    const { analysis } = view.lens;
    const { rows, columns } = this.grid();
    const height = Math.round((SIZE * view.lens.analysis.picture!.height) / view.lens.analysis.picture!.width);
    const context = sized(this.canvas, SIZE, height);
    context.drawImage(picture(analysis.picture!), 0, 0, SIZE, height);
    const [width, tall] = [SIZE / columns, height / rows];
    const strength = Number(this.strength.value) / 100;
    const painted = { ...view, matrix: view.lens.painted(view.state) };
    view.keys.members.forEach((members, column) => {
      const value = valueAt(painted, view.focus.row, column);
      for (const token of members) {
        const [row, at] = [analysis.keys.row?.[token] ?? -1, analysis.keys.column?.[token] ?? -1];
        if (row < 0 || at < 0 || Number.isNaN(value)) continue;
        context.globalAlpha = strength;
        context.fillStyle = view.palette.css[shade(value, view.palette)]!;
        context.fillRect(at * width, row * tall, width * (analysis.keys.count?.[token] ?? 1), tall);
        context.globalAlpha = 1;
      }
    });
    this.outline(context, view, width, tall);
    this.canvas.setAttribute(
      "aria-label",
      `Image of ${rows} by ${columns} patches, tinted by the row of ${view.queries.shown[view.focus.row]}`,
    );
  }

  private outline(context: CanvasRenderingContext2D, view: View, width: number, tall: number): void {
    const { analysis } = view.lens;
    const position = analysis.queries.position[view.queries.members[view.focus.row]?.[0] ?? -1];
    const token = analysis.keys.position.indexOf(position ?? -1);
    const patches = analysis.keys.count?.[token] ?? 1;
    const [row, column] = [analysis.keys.row?.[token] ?? -1, analysis.keys.column?.[token] ?? -1];
    if (row < 0) return;
    for (const [colour, line] of [
      ["#ffffff", 4],
      [view.ink.accent, 2],
    ] as const) {
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.strokeRect(column * width, row * tall, width * patches, tall);
    }
  }

  private clicked(event: MouseEvent): void {
    const { view } = this;
    if (!view) return;
    const { rows, columns } = this.grid();
    const column = Math.floor((event.offsetX / this.canvas.clientWidth) * columns);
    const row = Math.floor((event.offsetY / this.canvas.clientHeight) * rows);
    const { keys, queries } = view.lens.analysis;
    // Of a block of patches in one row, the block.
    const inside = (first: number, token: number): boolean =>
      column >= first && column < first + (keys.count?.[token] ?? 1);
    const token = keys.row?.findIndex((at, index) => at === row && inside(keys.column?.[index] ?? -1, index)) ?? -1;
    const query = queries.position.indexOf(keys.position[token] ?? -1);
    const unit = view.queries.of[query] ?? -1;
    this.context.choose(
      unit >= 0 ? { row: unit, column: -1 } : { row: view.selected.row, column: view.keys.of[token] ?? -1 },
    );
  }
}
