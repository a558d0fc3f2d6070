/** All that is shown of one analysis: layers, the card with the chosen view, and the panels about the row in focus. */
import { palette } from "./draw/colour";
import { bdi, h } from "./draw/dom";
import type { Cell } from "./draw/geometry";
import type { Thumbnails } from "./draw/thumbnails";
import { codeOf, methodShown, quantityShown, titleOf, type View, valueAt } from "./draw/view";
import * as format from "./model/format";
import { strongest } from "./model/matrix";
import { type Pane, sharedColouring } from "./model/pane";
import type { State } from "./model/state";
import type { Store } from "./model/store";
import { label } from "./model/tokens";
import { factsCorner } from "./panels/facts";
import { Layers } from "./panels/layers";
import { Legend } from "./panels/legend";
import { type Context, type MainPanel, Panel } from "./panels/panel";
import { DETAILS, VIEWS, viewFor } from "./panels/views";
import type { Look, Scene } from "./section";

/** Views whose colours the legend explains. */
const COLOURED = new Set(["map", "heads"]);

/** How many of the strongest cells one can go through. */
const MOST_JUMPS = 50;

/** Called with the hovered tokens of a pane (-1: none), so that other panes can follow. */
export type Follow = (pane: Pane, query: number, key: number) => void;

export class Stage extends Panel<Scene> {
  readonly element: HTMLElement;
  readonly layers: Layers;
  private readonly context: Context;
  private readonly legend = new Legend();
  private readonly title = h("h1");
  private readonly note = h("span", { class: "hint" });
  private readonly tools = h("div", { class: "tools" });
  private readonly holder = h("div", { class: "view" });
  private readonly foot: HTMLElement;
  private readonly announcement = h("p", { class: "visually-hidden", role: "status" });
  private readonly views = new Map<string, MainPanel>();
  private readonly details: Panel[];
  private hovered: Cell | null = null;
  private pending = 0;
  /** Whether to look for a token once the map is there. */
  private finding = false;
  private view: View | null = null;

  constructor(
    private readonly store: Store,
    readonly pane: Pane,
    private readonly panes: readonly Pane[],
    thumbnails: Thumbnails,
    private readonly follow: Follow,
  ) {
    super();
    this.context = { store, pane, panes, choose: (cell) => this.choose(cell), hover: (cell) => this.hover(cell) };
    this.layers = this.own(new Layers(store, pane, thumbnails));
    const hint =
      "Rows: the states that a layer builds (queries). Columns: the positions that it takes from (keys). A key is a position, " +
      "whose state is already a mixture of tokens after the first layer.";
    this.foot = h("footer", {}, this.legend, h("p", { class: "hint" }, hint));
    const card = h(
      "section",
      { class: "card map-card" },
      h("header", {}, h("div", {}, this.title, this.note), this.tools, factsCorner(pane.analysis)),
      this.holder,
      this.foot,
      this.announcement,
    );
    this.details = DETAILS.filter(
      (entry) => entry.shows?.(pane.analysis, { index: pane.index, count: panes.length }) ?? true,
    ).map(({ make }) => this.own(make(this.context)));
    const inspector = h("div", { class: "inspector" }, this.details);
    this.element = h("article", { class: "stage", "aria-label": pane.analysis.model }, this.layers, card, inspector);
    this.lifetime.onEnd(() => window.cancelAnimationFrame(this.pending));
  }

  /** The view as it is shown now. */
  current(): View {
    return this.view!;
  }

  update({ shared, look }: Scene): void {
    const view = this.makeView(shared, look);
    this.view = view;
    this.title.textContent = titleOf(view);
    const code = h("code", {}, codeOf(view));
    this.note.replaceChildren(code, " \u00b7 ", bdi(this.pane.analysis.model), this.remarks(shared, view));
    this.legend.update(view.palette, { norm: view.state.norm, quantity: quantityShown(view), ink: look.ink });
    this.foot.hidden = !COLOURED.has(this.viewName(view));
    const panel = this.mainPanel(view);
    panel.update(view);
    if (this.finding) panel.find?.();
    this.finding = false;
    this.announce(view);
    this.layers.update(shared);
    this.updateDetails();
  }

  /** Begin to look for a token: in the map, where the view that is shown has no search. */
  find(): void {
    const panel = this.shown();
    if (panel?.find) {
      panel.find();
      return;
    }
    this.finding = true;
    this.store.set({ view: "map" });
  }

  /** Handle a key in the chosen view. */
  press(key: string): void {
    this.shown()?.press?.(key);
  }

  /** Go to the next of the strongest cells, or to the one before (-1). */
  jump(by: 1 | -1): void {
    const { view } = this;
    if (!view) return;
    // Of a block of tokens, what each of them has on average.
    const cells = strongest(view.lens.painted(view.state), view.own, MOST_JUMPS);
    const { row, column } = view.selected;
    const now = cells.findIndex((cell) => cell.row === row && cell.column === column);
    const next = now < 0 ? (by > 0 ? 0 : cells.length - 1) : (now + by + cells.length) % cells.length;
    if (cells[next]) this.choose(cells[next]);
  }

  private viewName({ state }: View): string {
    return viewFor(state.view, this.pane.analysis, { index: this.pane.index, count: this.panes.length });
  }

  private shown(): MainPanel | undefined {
    return this.view ? this.views.get(this.viewName(this.view)) : undefined;
  }

  /** The panel of the chosen view, made when it is first chosen; the others are hidden. */
  private mainPanel(view: View): MainPanel {
    const name = this.viewName(view);
    let panel = this.views.get(name);
    if (!panel) {
      panel = this.own(VIEWS[name]!.make(this.context));
      this.holder.append(panel.element);
      if (panel.tools) this.tools.append(panel.tools);
      this.views.set(name, panel);
    }
    for (const other of this.views.values()) {
      other.element.hidden = other !== panel;
      if (other.tools) other.tools.hidden = other !== panel;
    }
    return panel;
  }

  /** How the values came about, and what another analysis has that this one does not. */
  private remarks(shared: State, view: View): string {
    const { state } = view;
    const missing = [
      shared.scope !== state.scope && shared.scope,
      shared.layer !== state.layer && `layer ${shared.layer}`,
    ].filter(Boolean);
    const remarks = [methodShown(view), missing.length > 0 ? `has no ${missing.join(", ")}` : ""].filter(Boolean);
    return remarks.map((remark) => ` \u00b7 ${remark}`).join("");
  }

  private makeView(shared: State, { ink, dark }: Look): View {
    const state = this.pane.state(shared);
    const lens = this.pane.lens(shared);
    const [queries, keys] = [lens.queries(state), lens.keys(state)];
    const row = nearestRow(queries.of, state.query);
    const selected = { row, column: state.key < 0 ? -1 : (keys.of[state.key] ?? -1) };
    const colours = palette(state.colours, sharedColouring(this.pane, this.panes, shared), {
      diverging: lens.signed(state),
      dark,
    });
    return {
      state,
      lens,
      queries,
      keys,
      matrix: lens.matrix(state),
      palette: colours,
      own: lens.own(state),
      ownShares: lens.ownShares(state),
      ink,
      dark,
      selected,
      focus: this.focusOf(selected),
    };
  }

  private focusOf(selected: Cell): Cell {
    if (!this.hovered) return selected;
    return { row: this.hovered.row >= 0 ? this.hovered.row : selected.row, column: this.hovered.column };
  }

  private updateDetails(): void {
    window.cancelAnimationFrame(this.pending);
    this.pending = window.requestAnimationFrame(() => {
      if (!this.view) return;
      this.view = { ...this.view, focus: this.focusOf(this.view.selected) };
      for (const panel of this.details) panel.update(this.view);
    });
  }

  private describe(view: View, { row, column }: Cell): string {
    const query = label(view.queries.shown[row] ?? "");
    if (column < 0) return `Row of ${query}`;
    const value = format.cell(valueAt(view, row, column), view.state.norm, view.palette.diverging);
    return `${query} \u2190 ${label(view.keys.shown[column] ?? "")}: ${value}`;
  }

  private announce(view: View): void {
    const text = `${titleOf(view)}. ${this.describe(view, view.selected)}`;
    if (this.announcement.textContent !== text) this.announcement.textContent = text;
  }

  private choose(cell: Cell): void {
    const { view } = this;
    if (!view) return;
    const query = cell.row >= 0 ? (view.queries.members[cell.row]?.[0] ?? -1) : -1;
    const key = cell.column >= 0 ? (view.keys.members[cell.column]?.[0] ?? -1) : -1;
    const shared = this.store.state;
    const first = { query: this.pane.toFirst(shared, "queries", query), key: this.pane.toFirst(shared, "keys", key) };
    this.store.set({ ...(first.query >= 0 ? { query: first.query } : {}), key: key >= 0 ? first.key : -1 });
  }

  private hover(cell: Cell | null): void {
    this.point(cell);
    const { view } = this;
    const query = cell && view ? (view.queries.members[cell.row]?.[0] ?? -1) : -1;
    const key = cell && view ? (view.keys.members[cell.column]?.[0] ?? -1) : -1;
    this.follow(this.pane, query, key);
  }

  /** Highlight what is hovered in another pane (indices of this pane's tokens). */
  followed(query: number, key: number): void {
    const { view } = this;
    if (!view) return;
    const cell = { row: view.queries.of[query] ?? -1, column: view.keys.of[key] ?? -1 };
    this.point(cell.row < 0 && cell.column < 0 ? null : cell);
  }

  private point(cell: Cell | null): void {
    this.hovered = cell;
    for (const panel of this.views.values()) panel.point?.(cell);
    this.updateDetails();
  }
}

/** The row of a query token; where that is hidden, the nearest one that is not. */
function nearestRow(of: number[], token: number): number {
  for (let distance = 0; distance < of.length; distance++) {
    for (const near of [token + distance, token - distance]) {
      if ((of[near] ?? -1) >= 0) return of[near]!;
    }
  }
  return 0;
}
