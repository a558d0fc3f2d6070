/** All that is shown of one analysis: layers, heat map or table, and the panels about the row in focus. */

import { bdi, h } from "./draw/dom";
import type { Cell } from "./draw/geometry";
import { HeatMap } from "./draw/heatmap";
import { Legend } from "./draw/legend";
import type { Ink } from "./draw/paint";
import type { Thumbnails } from "./draw/thumbnails";
import { type View, valueAt } from "./draw/view";
import { titleOf } from "./exports/figure";
import * as format from "./model/format";
import type { Pane } from "./model/pane";
import { quantity } from "./model/scopes";
import type { State } from "./model/state";
import type { Store } from "./model/store";
import { label, shortLabel } from "./model/tokens";
import { Bars } from "./panels/bars";
import { ChainChart, MixingChart } from "./panels/charts";
import { factsCorner } from "./panels/facts";
import { Layers } from "./panels/layers";
import { Patches } from "./panels/patches";
import { Ribbon } from "./panels/ribbon";
import { Table } from "./panels/table";

export interface Look {
  ink: Ink;
  dark: boolean;
}

/** Told of token indices of this pane (-1: none), so that other panes can follow. */
export type Follow = (pane: Pane, query: number, key: number) => void;

export class Stage {
  readonly element: HTMLElement;
  readonly layers: Layers;
  private readonly heatmap: HeatMap;
  private readonly legend = new Legend();
  private readonly title = h("h1");
  private readonly note = h("span", { class: "hint" });
  private readonly tooltip = h("div", { class: "tooltip", hidden: true });
  private readonly spoken = h("p", { class: "visually-hidden", role: "status" });
  private readonly table: Table;
  private readonly mapCard: HTMLElement;
  private readonly inspector: HTMLElement;
  private readonly panels: { element: HTMLElement; update(view: View): void }[];
  private hovered: Cell | null = null;
  private pending = 0;
  private view: View | null = null;

  constructor(
    private readonly store: Store,
    readonly pane: Pane,
    thumbnails: Thumbnails,
    private readonly follow: Follow,
  ) {
    const events = {
      choose: (cell: Cell) => this.choose(cell),
      hover: (cell: Cell | null) => this.hover(cell),
      layer: (layer: number) => store.set({ layer }),
    };
    this.layers = new Layers(store, pane, thumbnails);
    this.heatmap = new HeatMap({
      hover: (cell, x, y) => this.pointed(cell, x, y),
      choose: (cell) => this.choose(cell),
    });
    this.table = new Table(events);
    this.panels = [
      pane.analysis.picture ? new Patches(events) : new Ribbon(events),
      new Bars(store, events),
      new ChainChart(),
      new MixingChart(events),
    ];
    const zoom = (name: string, sign: string, act: () => void): HTMLElement =>
      h("button", { type: "button", "aria-label": name, title: name, click: act }, sign);
    const tools = h(
      "div",
      { class: "zoom", role: "group", "aria-label": "Zoom" },
      zoom("Zoom out", "\u2212", () => this.heatmap.setZoom(this.heatmap.zoomed / 1.5)),
      zoom("Fit", "fit", () => this.heatmap.setZoom(1)),
      zoom("Zoom in", "+", () => this.heatmap.setZoom(this.heatmap.zoomed * 1.5)),
    );
    this.mapCard = h(
      "section",
      { class: "card map-card" },
      h("header", {}, h("div", {}, this.title, this.note), tools, factsCorner(pane.analysis)),
      this.heatmap.element,
      this.table.element,
      this.tooltip,
      h(
        "footer",
        {},
        this.legend.element,
        h("p", { class: "hint" }, "rows are queries (what is built), columns are keys (what it is built from)"),
      ),
      this.spoken,
    );
    this.inspector = h("div", { class: "inspector" }, ...this.panels.map((panel) => panel.element));
    this.element = h(
      "article",
      { class: "stage", "aria-label": pane.analysis.model },
      this.layers.element,
      this.mapCard,
      this.inspector,
    );
  }

  /** The view as it is shown now. */
  current(): View {
    return this.view!;
  }

  update(shared: State, look: Look): void {
    const view = this.makeView(shared, look);
    this.view = view;
    const { state } = view;
    const table = state.view === "table";
    this.heatmap.element.hidden = table;
    this.table.element.hidden = !table;
    this.mapCard.classList.toggle("as-table", table);
    this.title.textContent = titleOf(view);
    this.note.replaceChildren(bdi(this.pane.analysis.model), this.substituted(shared, state));
    this.legend.update(view.palette, {
      norm: state.norm,
      title: quantity(state.scope, state.norm) + (state.base ? ", difference" : ""),
    });
    if (table) this.table.update(view);
    else this.showMap(view);
    this.speak(view);
    this.layers.update(shared);
    this.updatePanels();
  }

  private substituted(shared: State, state: State): string {
    const missing = [
      shared.scope !== state.scope && shared.scope,
      shared.layer !== state.layer && `layer ${shared.layer}`,
    ].filter(Boolean);
    return missing.length > 0 ? ` \u00b7 has no ${missing.join(", ")}` : "";
  }

  private makeView(shared: State, { ink, dark }: Look): View {
    const state = this.pane.state(shared);
    const lens = this.pane.lens(shared);
    const [queries, keys] = [lens.queries(state), lens.keys(state)];
    const selected = {
      row: this.rowOf(queries.of, state.query),
      column: state.key < 0 ? -1 : (keys.of[state.key] ?? -1),
    };
    return {
      state,
      lens,
      queries,
      keys,
      matrix: lens.matrix(state),
      palette: this.pane.palette(shared, dark),
      ink,
      dark,
      selected,
      focus: this.focusOf(selected),
    };
  }

  /** The row of a query token; where that is hidden, the nearest one that is not. */
  private rowOf(of: number[], token: number): number {
    for (let distance = 0; distance < of.length; distance++) {
      for (const near of [token + distance, token - distance]) {
        if ((of[near] ?? -1) >= 0) return of[near]!;
      }
    }
    return 0;
  }

  private focusOf(selected: Cell): Cell {
    if (!this.hovered) return selected;
    return { row: this.hovered.row >= 0 ? this.hovered.row : selected.row, column: this.hovered.column };
  }

  private showMap(view: View): void {
    const { matrix, palette, queries, keys, ink, selected } = view;
    const label = `${titleOf(view)}: ${matrix.rows} queries by ${matrix.columns} keys. Arrow keys move, plus and minus zoom.`;
    this.heatmap.show({ matrix, palette, queries, keys, ink, selected, label });
  }

  private updatePanels(): void {
    window.cancelAnimationFrame(this.pending);
    this.pending = window.requestAnimationFrame(() => {
      if (!this.view) return;
      this.view = { ...this.view, focus: this.focusOf(this.view.selected) };
      for (const panel of this.panels) panel.update(this.view);
    });
  }

  private describe(view: View, { row, column }: Cell): string {
    const query = label(view.queries.labels[row] ?? "");
    if (column < 0) return `Row of ${query}`;
    const value = format.cell(valueAt(view, row, column), view.state.norm, view.palette.diverging);
    return `${query} \u2190 ${label(view.keys.labels[column] ?? "")}: ${value}`;
  }

  private speak(view: View): void {
    const text = `${titleOf(view)}. ${this.describe(view, view.selected)}`;
    if (this.spoken.textContent !== text) this.spoken.textContent = text;
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

  private pointed(cell: Cell | null, x: number, y: number): void {
    this.hover(cell);
    const { view } = this;
    this.tooltip.hidden = !cell || !view || cell.row < 0;
    if (!cell || !view || cell.row < 0) return;
    const value = valueAt(view, cell.row, cell.column);
    const names = [view.queries.labels[cell.row], ...(cell.column >= 0 ? [view.keys.labels[cell.column]] : [])].map(
      (text) => bdi(shortLabel(text ?? "", 60)),
    );
    const { norm } = view.state;
    const unit = norm === "none" ? "" : view.palette.diverging ? " points" : ` of its ${norm}`;
    const told = Number.isNaN(value)
      ? "not there at this scope"
      : format.cell(value, norm, view.palette.diverging) + unit;
    this.tooltip.replaceChildren(
      h("strong", {}, names[0]!, ...(names[1] ? [" \u2190 ", names[1]] : [])),
      ...(names[1] ? [h("span", {}, told)] : []),
    );
    const room = this.mapCard.clientWidth;
    const offset = this.heatmap.element.offsetTop;
    this.tooltip.style.left = `${Math.min(x + 22, room - this.tooltip.offsetWidth - 8)}px`;
    this.tooltip.style.top = `${y + offset + 18}px`;
  }

  private hover(cell: Cell | null): void {
    this.hovered = cell;
    this.heatmap.highlight(cell);
    this.updatePanels();
    const { view } = this;
    const query = cell && view ? (view.queries.members[cell.row]?.[0] ?? -1) : -1;
    const key = cell && view ? (view.keys.members[cell.column]?.[0] ?? -1) : -1;
    this.follow(this.pane, query, key);
  }

  /** Show as pointed at what another pane's pointer is on (indices of this pane's tokens). */
  followed(query: number, key: number): void {
    const { view } = this;
    if (!view) return;
    const cell = { row: view.queries.of[query] ?? -1, column: view.keys.of[key] ?? -1 };
    this.hovered = cell.row < 0 && cell.column < 0 ? null : cell;
    this.heatmap.highlight(this.hovered);
    this.updatePanels();
  }
}
