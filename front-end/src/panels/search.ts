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

  /** `changed` is called when the matches change. */
  constructor(
    private readonly context: Context,
    private readonly changed: () => void,
  ) {
    this.element = h("div", { class: "find" }, this.count, this.field);
    this.field.addEventListener("input", () => this.search());
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

  private search(): void {
    this.now = this.matching();
    const count = Math.max(this.now.rows.size, this.now.columns.size);
    this.count.textContent = this.field.value.trim() === "" ? "" : count === 0 ? "none" : String(count);
    this.changed();
  }

  /** Enter goes to the next matching token (with Shift to the one before), Escape ends the search. */
  private typed(event: KeyboardEvent): void {
    if (event.key === "Escape") {
      this.field.value = "";
      this.search();
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

/** The next of some indices after one, or the one before it, around the end. */
function following(indices: number[], from: number, back: boolean): number {
  if (back) return indices.findLast((index) => index < from) ?? indices.at(-1) ?? -1;
  return indices.find((index) => index > from) ?? indices[0] ?? -1;
}
