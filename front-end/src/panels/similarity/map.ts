/** The table as a map: rows are the first text, columns the second, and what their tokens do with biases at the edges. */
import { palette } from "../../draw/colour";
import { bdi, h } from "../../draw/dom";
import { largest } from "../../draw/flowview";
import type { Cell } from "../../draw/geometry";
import { HeatMap } from "../../draw/heatmap";
import { NO_MATCHES } from "../../draw/mapmarks";
import type { Focus, SimilarityView } from "../../draw/similarityview";
import * as format from "../../model/format";
import { scaleFor, sizesOf } from "../../model/scale";
import { type Account, withMargins } from "../../model/similarity";
import { shortLabel } from "../../model/tokens";
import { Legend } from "../legend";
import { Panel } from "../panel";
import type { Actions } from "./texts";

export class SimilarityMap extends Panel<SimilarityView> {
  readonly element: HTMLElement;
  private readonly heatmap: HeatMap;
  private readonly legend = new Legend();
  private readonly tooltip = h("div", { class: "tooltip", hidden: true });
  private readonly holder: HTMLElement;
  private shown: ReturnType<typeof withMargins> | null = null;
  private built: Account | null = null;

  constructor(private readonly actions: Actions) {
    super();
    this.heatmap = new HeatMap(
      { hover: (cell, x, y) => this.pointed(cell, x, y), choose: (cell) => actions.choose(this.focusOf(cell) ?? {}) },
      this.lifetime,
    );
    this.holder = h("div", { class: "map-view" }, this.heatmap.element, this.tooltip);
    const hint = "rows: first text, columns: second text; at the edges, what tokens do with the other text\u2019s bias";
    this.element = h(
      "section",
      { class: "card similarity-map" },
      h("header", {}, h("h2", {}, "Table"), h("span", { class: "hint" }, hint)),
      this.holder,
      this.legend,
    );
  }

  update(view: SimilarityView): void {
    const { account, ink, dark, selected } = view;
    this.element.hidden = account.table === null;
    if (!account.table) return;
    if (this.built !== account) this.shown = withMargins(account);
    this.built = account;
    // The constant may be larger than anything between tokens: colours are for those.
    const limit = largest(account.table.values);
    const scale = scaleFor("root", sizesOf(account.table), limit);
    const colours = palette(
      "normscope",
      { limit, most: largest(this.shown!.matrix.values), scale },
      { diverging: true, dark },
    );
    const { rows, columns } = account.table;
    this.heatmap.show({
      ...this.shown!,
      palette: colours,
      selected: { row: selected?.first ?? -1, column: selected?.second ?? -1 },
      ink,
      label: `Table of ${rows} by ${columns} tokens. Arrow keys move, plus and minus zoom.`,
      grey: null,
      ownBars: null,
      matches: NO_MATCHES,
    });
    this.legend.update(colours, { norm: "none", quantity: "share of the similarity", ink });
  }

  point(focus: Focus | null): void {
    this.heatmap.highlight(focus && { row: focus.first ?? -1, column: focus.second ?? -1 });
  }

  /** What a cell belongs to; null where it is of biases alone. */
  private focusOf({ row, column }: Cell): Focus | null {
    const { rows, columns } = this.shown!.matrix;
    const focus: Focus = {};
    if (row >= 0 && row < rows - 1) focus.first = row;
    if (column >= 0 && column < columns - 1) focus.second = column;
    return Object.keys(focus).length > 0 ? focus : null;
  }

  private pointed(cell: Cell | null, x: number, y: number): void {
    this.actions.hover(cell && this.focusOf(cell));
    const inside = cell !== null && this.shown !== null && cell.row >= 0 && cell.column >= 0;
    this.tooltip.hidden = !inside;
    if (!inside) return;
    const { matrix, queries, keys } = this.shown!;
    const name = (text: string | undefined): HTMLElement => bdi(shortLabel(text ?? "", 40));
    this.tooltip.replaceChildren(
      h("strong", {}, name(queries.shown[cell.row]), " \u2013 ", name(keys.shown[cell.column])),
      h("span", {}, format.signed(matrix.values[cell.row * matrix.columns + cell.column]!)),
    );
    const room = this.holder.clientWidth - this.tooltip.offsetWidth;
    this.tooltip.style.left = `${Math.max(0, Math.min(x + 8, room))}px`;
    this.tooltip.style.top = `${y + 18}px`;
  }
}
