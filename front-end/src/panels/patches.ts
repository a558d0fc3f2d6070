/** Patches over their image: what the chosen query took from every patch, and patches to choose as queries. */
import { shade } from "../draw/colour";
import { h, sized } from "../draw/dom";
import { type Box, type Mark, paintMarks } from "../draw/marks";
import { picture } from "../draw/picture";
import { type View, valueAt } from "../draw/view";
import type { TokenTable } from "../model/payload";
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
    const [width, tall] = [SIZE / columns, height / rows];
    const strength = Number(this.strength.value) / 100;
    const painted = { ...view, matrix: view.lens.painted(view.state) };
    const tints = view.keys.members.flatMap((members, column) => {
      const value = valueAt(painted, view.focus.row, column);
      if (Number.isNaN(value)) return [];
      const fill = view.palette.css[shade(value, view.palette)]!;
      return members.flatMap((token): Mark[] => {
        const box = patchBox(analysis.keys, token, width, tall);
        return box ? [{ kind: "rect", ...box, fill, opacity: strength }] : [];
      });
    });
    const image = { x: 0, y: 0, width: SIZE, height };
    paintMarks(context, [
      { kind: "bitmap", ...image, bitmap: picture(analysis.picture!), smooth: true },
      ...tints,
      ...this.outline(view, width, tall),
    ]);
    this.canvas.setAttribute(
      "aria-label",
      `Image of ${rows} by ${columns} patches, tinted by the row of ${view.queries.shown[view.focus.row]}`,
    );
  }

  /** A frame around the patch of the query. */
  private outline(view: View, width: number, tall: number): Mark[] {
    const { analysis } = view.lens;
    const position = analysis.queries.position[view.queries.members[view.focus.row]?.[0] ?? -1];
    const token = analysis.keys.position.indexOf(position ?? -1);
    const box = patchBox(analysis.keys, token, width, tall);
    if (!box) return [];
    return [
      { kind: "rect", ...box, stroke: "#ffffff", lineWidth: 4 },
      { kind: "rect", ...box, stroke: view.ink.accent, lineWidth: 2 },
    ];
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

/** Where the patch (or block of patches) of a token is; null if the token is not a patch. */
function patchBox(table: TokenTable, token: number, width: number, height: number): Box | null {
  const [row, column] = [table.row?.[token] ?? -1, table.column?.[token] ?? -1];
  if (row < 0 || column < 0) return null;
  return { x: column * width, y: row * height, width: width * (table.count?.[token] ?? 1), height };
}
