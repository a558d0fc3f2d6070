/** The row of one query as bars: what it took from every key, largest first or in the order of the text. */
import { scaleLinear } from "d3-scale";
import { shade } from "../draw/colour";
import { type Control, segmented } from "../draw/controls";
import { bdi, h } from "../draw/dom";
import { named, type View, valueAt } from "../draw/view";
import * as format from "../model/format";
import { label } from "../model/tokens";
import { type Context, ElementPanel } from "./panel";

const MOST = 40;

/** A bar's length says how small its value is; its colour stays one that can be seen. */
function legible(place: number, diverging: boolean): number {
  if (!diverging) return Math.max(90, place);
  return place < 128 ? Math.min(70, place) : Math.max(185, place);
}

export class Bars extends ElementPanel {
  readonly element: HTMLElement;
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
    this.element = h(
      "section",
      { class: "card" },
      h("header", {}, h("h2", {}, "Row"), this.order.element),
      this.list,
      this.note,
    );
  }

  update(view: View): void {
    const { state, keys, palette, focus } = view;
    this.order.set(state.order);
    this.element.querySelector("h2")!.replaceChildren("What ", named(view.queries.shown[focus.row]), " is made of");
    const entries = keys.shown
      .map((text, column) => ({ text, column, value: valueAt(view, focus.row, column) }))
      .filter(({ value }) => !Number.isNaN(value));
    const largest = entries.toSorted((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, MOST);
    if (state.order === "text") largest.sort((a, b) => a.column - b.column);
    const most = Math.max(...largest.map(({ value }) => Math.abs(value)), 1e-30);
    const width = scaleLinear([0, most], [0, palette.diverging ? 50 : 100]);
    this.list.classList.toggle("diverging", palette.diverging);
    this.list.replaceChildren(
      ...largest.map(({ text, column, value }) => {
        const bar = h("i");
        bar.style.width = `${width(Math.abs(value))}%`;
        bar.style.background = palette.css[legible(shade(value, palette), palette.diverging)]!;
        if (palette.diverging) bar.style.marginInlineStart = value < 0 ? `${50 - width(-value)}%` : "50%";
        return h(
          "li",
          {
            class: column === focus.column ? "chosen" : "",
            click: () => this.context.choose({ row: view.selected.row, column }),
          },
          h(
            "button",
            { type: "button", class: "key" },
            bdi(label(text), { class: keys.special[column] ? "special" : "" }),
          ),
          h("span", { class: "track" }, bar),
          h("span", { class: "value" }, format.cell(value, state.norm, palette.diverging)),
        );
      }),
    );
    const left = entries.length - largest.length;
    const smaller = left > 0 ? `${left} smaller ${left === 1 ? "one is" : "ones are"} in the table.` : "";
    const own = view.ownShares[focus.row] ?? Number.NaN;
    const out =
      state.own === "out" && !Number.isNaN(own) ? `Left out: its own token, ${format.share(own)} of the row.` : "";
    this.note.textContent = [out, smaller].filter(Boolean).join(" ");
    this.note.hidden = this.note.textContent === "";
  }
}
