/** A field to look for tokens with: which rows and columns have what is typed, and Enter to go from one to the next. */
import { h } from "../draw/dom";
import { type Matches, NO_MATCHES } from "../draw/mapmarks";
import type { View } from "../draw/view";
import { label, type Units } from "../model/tokens";
import type { Context } from "./panel";

export class TokenSearch {
  readonly element: HTMLElement;
  private readonly field = h("input", {
    type: "search",
    class: "search",
    placeholder: "Find a token  /",
    "aria-label": "Find a token",
    autocomplete: "off",
    spellcheck: "false",
  });
  private readonly count = h("output", { class: "hint count" });
  private view: View | null = null;
  private now: Matches = NO_MATCHES;

  /** `changed` is told when other tokens match than before. */
  constructor(
    private readonly context: Context,
    private readonly changed: () => void,
  ) {
    this.element = h("div", { class: "find" }, this.count, this.field);
    this.field.addEventListener("input", () => this.looked());
    this.field.addEventListener("keydown", (event) => this.typed(event));
  }

  get matches(): Matches {
    return this.now;
  }

  update(view: View): void {
    const other = this.view?.queries !== view.queries || this.view.keys !== view.keys;
    this.view = view;
    if (other) this.now = this.matching();
  }

  focus(): void {
    this.field.focus();
    this.field.select();
  }

  private matching(): Matches {
    const text = this.field.value.trim().toLowerCase();
    if (text === "" || !this.view) return NO_MATCHES;
    const of = ({ shown }: Units): Set<number> =>
      new Set(shown.flatMap((one, unit) => (label(one).toLowerCase().includes(text) ? [unit] : [])));
    return { rows: of(this.view.queries), columns: of(this.view.keys) };
  }

  private looked(): void {
    this.now = this.matching();
    const count = Math.max(this.now.rows.size, this.now.columns.size);
    this.count.textContent = this.field.value.trim() === "" ? "" : count === 0 ? "none" : String(count);
    this.changed();
  }

  /** Enter goes to the next token that was looked for (with Shift to the one before), Escape ends the search. */
  private typed(event: KeyboardEvent): void {
    if (event.key === "Escape") {
      this.field.value = "";
      this.looked();
      this.field.blur();
    }
    if (event.key !== "Enter" || !this.view) return;
    event.preventDefault();
    const { rows, columns } = this.now;
    const { row, column } = this.view.selected;
    const byRow = rows.size > 0;
    const next = following([...(byRow ? rows : columns)], byRow ? row : column, event.shiftKey);
    if (next >= 0) this.context.choose(byRow ? { row: next, column: -1 } : { row, column: next });
  }
}

/** The next of some places after one, or the one before it, around the end. */
function following(places: number[], from: number, back: boolean): number {
  if (back) return places.findLast((place) => place < from) ?? places.at(-1) ?? -1;
  return places.find((place) => place > from) ?? places[0] ?? -1;
}
