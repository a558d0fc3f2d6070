/** The row of one query as bars: what it took from every key, largest first or in the order of the text. */
import { shade } from "../draw/colour";
import { type Control, segmented } from "../draw/controls";
import { bdi, h } from "../draw/dom";
import { named, type View, valueAt } from "../draw/view";
import * as format from "../model/format";
import { label } from "../model/tokens";
import { barLine } from "./bar";
import { type Context, Panel } from "./panel";

const MOST = 40;

/** The index of a colour that can be seen: the length of a bar shows how small its value is, not its colour. */
function legible(colour: number, diverging: boolean): number {
  if (!diverging) return Math.max(90, colour);
  return colour < 128 ? Math.min(70, colour) : Math.max(185, colour);
}

export class Bars extends Panel {
  readonly element: HTMLElement;
  private readonly title = h("h2");
  private readonly list = h("ol", { class: "bars" });
  private readonly note = h("p", { class: "note" });
  private readonly order: Control;

  constructor(private readonly context: Context) {
    super();
    this.order = segmented(
      "Order",
      [
        { value: "value", label: "By size" },
        { value: "text", label: "In order" },
      ],
      (value) => context.store.set({ order: value as "value" | "text" }),
    );
    this.element = h("section", { class: "card" }, h("header", {}, this.title, this.order), this.list, this.note);
  }

  update(view: View): void {
    const { state, keys, palette, focus } = view;
    this.order.update({ value: state.order });
    this.title.replaceChildren("Contributions to ", named(view.queries.shown[focus.row]));
    const entries = keys.shown
      .map((text, column) => ({ text, column, value: valueAt(view, focus.row, column) }))
      .filter(({ value }) => !Number.isNaN(value));
    const largest = entries.toSorted((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, MOST);
    if (state.order === "text") largest.sort((a, b) => a.column - b.column);
    const most = Math.max(...largest.map(({ value }) => Math.abs(value)), 1e-30);
    this.list.classList.toggle("diverging", palette.diverging);
    this.list.replaceChildren(
      ...largest.map(({ text, column, value }) => {
        const name = bdi(label(text), { class: keys.special[column] ? "special" : "" });
        return barLine({
          name: h("button", { type: "button", class: "key" }, name),
          size: value / most,
          diverging: palette.diverging,
          colour: palette.css[legible(shade(value, palette), palette.diverging)]!,
          value: format.cell(value, state.norm, palette.diverging),
          chosen: column === focus.column,
          choose: () => this.context.choose({ row: view.selected.row, column }),
        });
      }),
    );
    const left = entries.length - largest.length;
    const smaller = left > 0 ? `${left} smaller ${left === 1 ? "value is" : "values are"} in the table.` : "";
    const own = view.ownShares[focus.row] ?? Number.NaN;
    const out =
      state.own === "out" && !Number.isNaN(own) ? `Its own token is left out: ${format.share(own)} of the row.` : "";
    this.note.textContent = [out, smaller].filter(Boolean).join(" ");
    this.note.hidden = this.note.textContent === "";
  }
}
