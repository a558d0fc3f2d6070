/** The same numbers as a table: the chosen query's row at every scope of the layer, for screen readers and for copying. */
import { bdi, h } from "../draw/dom";
import { named, type View } from "../draw/view";
import * as format from "../model/format";
import { label } from "../model/tokens";
import { type Context, type MainPanel, Panel } from "./panel";
import { TokenSearch } from "./search";

export class Table extends Panel implements MainPanel {
  readonly element: HTMLElement;
  private readonly select = h("select", { "aria-label": "Query" });
  private readonly holder = h("div", {
    class: "scroller",
    tabindex: 0,
    role: "region",
    "aria-label": "Values, scrollable",
  });
  readonly tools: HTMLElement;
  private readonly search: TokenSearch;
  private view: View | null = null;

  constructor(private readonly context: Context) {
    super();
    this.search = new TokenSearch(context, () => this.view && this.update(this.view));
    this.tools = this.search.element;
    this.element = h(
      "div",
      { class: "table" },
      h("label", { class: "menu" }, h("span", {}, "Query"), this.select),
      this.holder,
    );
    this.select.addEventListener("change", () =>
      this.context.choose({ row: Number(this.select.value), column: this.view?.selected.column ?? -1 }),
    );
  }

  update(view: View): void {
    if (this.view?.queries !== view.queries) {
      this.select.replaceChildren(
        ...view.queries.shown.map((text, row) => h("option", { value: row }, `${row + 1}  ${label(text)}`)),
      );
    }
    const elsewhere = this.view?.state.scope !== view.state.scope || this.view.selected.row !== view.selected.row;
    this.view = view;
    this.search.update(view);
    this.select.value = String(view.selected.row);
    const { state, lens, keys, selected } = view;
    const scopes = lens.analysis.scopeNames;
    const matrices = scopes.map((scope) => lens.matrix({ ...state, scope, base: "" }));
    const signed = state.base !== "";
    const head = h(
      "tr",
      {},
      h("th", { scope: "col" }, "#"),
      h("th", { scope: "col" }, "key"),
      signed ? h("th", { scope: "col", class: "now" }, `${state.scope} \u2212 ${state.base}`) : null,
      ...scopes.map((scope) => h("th", { scope: "col", class: !signed && scope === state.scope ? "now" : "" }, scope)),
    );
    const { columns } = this.search.matches;
    const rows = keys.shown.map((text, column) => {
      const at = selected.row * keys.shown.length + column;
      return h(
        "tr",
        { class: column === selected.column ? "chosen" : "" },
        h("td", {}, String(column + 1)),
        h("th", { scope: "row", class: columns.has(column) ? "match" : "" }, bdi(label(text))),
        signed ? h("td", { class: "now" }, format.cell(view.matrix.values[at]!, state.norm, true)) : null,
        ...matrices.map((matrix, index) =>
          h(
            "td",
            { class: !signed && scopes[index] === state.scope ? "now" : "" },
            format.cell(matrix.values[at]!, state.norm, false),
          ),
        ),
      );
    });
    const title = ["Row of ", named(view.queries.shown[selected.row]), `, layer ${state.layer}, at every scope`];
    const caption = h("caption", {}, h("span", {}, title));
    this.holder.replaceChildren(h("table", {}, caption, h("thead", {}, head), h("tbody", {}, ...rows)));
    if (elsewhere) this.reveal();
  }

  find(): void {
    this.search.focus();
  }

  /** Scroll the table (and nothing else) to the column of the scope, next to the keys. */
  private reveal(): void {
    const { holder } = this;
    const [key, now] = ["thead th:nth-child(2)", "thead th.now"].map((name) =>
      holder.querySelector(name)?.getBoundingClientRect(),
    );
    if (!key || !now) return;
    const { right } = holder.getBoundingClientRect();
    if (now.right > right) holder.scrollLeft += now.right - right;
    else if (now.left < key.right) holder.scrollLeft -= key.right - now.left;
  }
}
