/** The first of two analyses minus the second, at the tokens that both have. */
import { palette } from "../draw/colour";
import { bdi, h } from "../draw/dom";
import { largest, signColour } from "../draw/flowview";
import type { Cell } from "../draw/geometry";
import { HeatMap } from "../draw/heatmap";
import { NO_MATCHES } from "../draw/mapmarks";
import type { View } from "../draw/view";
import * as format from "../model/format";
import { label } from "../model/tokens";
import { alignedValues, namesOf } from "./aligned";
import { type Context, type MainPanel, Panel } from "./panel";

export class Difference extends Panel implements MainPanel {
  readonly element: HTMLElement;
  private readonly heatmap: HeatMap;
  private readonly about = h("p", { class: "note" });
  private readonly status = h("p", { class: "note", role: "status" });
  private differences = new Float32Array();
  private view: View | null = null;

  constructor(private readonly context: Context) {
    super();
    this.heatmap = new HeatMap(
      { hover: (cell) => this.pointed(cell), choose: (cell) => context.choose(cell) },
      this.lifetime,
    );
    this.element = h("div", { class: "difference-view" }, this.about, this.heatmap.element, this.status);
  }

  update(view: View): void {
    this.view = view;
    const { matrix, state, dark } = view;
    const second = alignedValues(this.context, view);
    this.differences = matrix.values.map((first, at) => first - second[at]!);
    const most = largest(this.differences.filter((value) => !Number.isNaN(value))) || 1;
    const colouring = { limit: most, most, scale: { kind: "root" as const } };
    const colours = palette(state.colours, colouring, { diverging: true, dark });
    const [first, other] = namesOf(this.context.panes);
    const [more, less] = [h("b", {}, "orange"), h("b", {}, "violet")];
    more.style.color = signColour(1, dark);
    less.style.color = signColour(-1, dark);
    const range = format.cell(most, state.norm, false);
    this.about.replaceChildren(
      bdi(first!),
      " minus ",
      bdi(other!),
      ": ",
      more,
      " is more, ",
      less,
      ` is less, up to ${range}`,
    );
    const name = `${first} minus ${other}`;
    const [grey, ownBars] = [null, null];
    const shown = { ...view, matrix: { ...matrix, values: this.differences }, palette: colours };
    this.heatmap.show({ ...shown, label: name, grey, ownBars, matches: NO_MATCHES });
    this.describe(view.focus);
  }

  point(cell: Cell | null): void {
    this.heatmap.highlight(cell);
  }

  press(key: string): boolean {
    return this.heatmap.press(key);
  }

  private pointed(cell: Cell | null): void {
    this.context.hover(cell);
    this.describe(cell);
  }

  private describe(cell: Cell | null): void {
    const { view } = this;
    const value = view && cell ? this.differences[cell.row * view.matrix.columns + cell.column] : undefined;
    if (!view || !cell || cell.row < 0 || cell.column < 0 || value === undefined) {
      this.status.textContent = "Tokens that only one text has are empty.";
      return;
    }
    const [query, key] = [view.queries.shown[cell.row] ?? "", view.keys.shown[cell.column] ?? ""];
    const shown = Number.isNaN(value) ? "only in one of the two" : format.cell(value, view.state.norm, true);
    this.status.textContent = `${label(query)} \u2190 ${label(key)}: ${shown}`;
  }
}
