/** The map as a view: the heat map with its zoom buttons, and a tooltip at the cell under the pointer. */
import { bdi, h } from "../draw/dom";
import type { Cell } from "../draw/geometry";
import { HeatMap } from "../draw/heatmap";
import { titleOf, type View, valueAt } from "../draw/view";
import * as format from "../model/format";
import { shortLabel } from "../model/tokens";
import { type Context, ElementPanel, type MainPanel } from "./panel";

const ZOOM_STEP = 1.5;

export class MapPanel extends ElementPanel implements MainPanel {
  readonly element: HTMLElement;
  readonly tools: HTMLElement;
  private readonly heatmap: HeatMap;
  private readonly tooltip = h("div", { class: "tooltip", hidden: true });
  private view: View | null = null;

  constructor(private readonly context: Context) {
    super();
    this.heatmap = new HeatMap(
      { hover: (cell, x, y) => this.pointed(cell, x, y), choose: (cell) => context.choose(cell) },
      this.life,
    );
    this.element = h("div", { class: "map-view" }, this.heatmap.element, this.tooltip);
    const { heatmap } = this;
    this.tools = h(
      "div",
      { class: "zoom", role: "group", "aria-label": "Zoom" },
      button("Zoom out", "\u2212", () => heatmap.setZoom(heatmap.zoomed / ZOOM_STEP)),
      button("Fit", "fit", () => heatmap.setZoom(1)),
      button("Zoom in", "+", () => heatmap.setZoom(heatmap.zoomed * ZOOM_STEP)),
    );
  }

  update(view: View): void {
    this.view = view;
    const { matrix } = view;
    const size = `${matrix.rows} queries by ${matrix.columns} keys`;
    const label = `${titleOf(view)}: ${size}. Arrow keys move, plus and minus zoom.`;
    this.heatmap.show({ ...view, label });
  }

  point(cell: Cell | null): void {
    this.heatmap.highlight(cell);
  }

  private pointed(cell: Cell | null, x: number, y: number): void {
    this.context.hover(cell);
    const { view } = this;
    this.tooltip.hidden = !cell || !view || cell.row < 0;
    if (!cell || !view || cell.row < 0) return;
    const query = bdi(shortLabel(view.queries.labels[cell.row] ?? "", 60));
    if (cell.column < 0) {
      this.tooltip.replaceChildren(h("strong", {}, query));
    } else {
      const key = bdi(shortLabel(view.keys.labels[cell.column] ?? "", 60));
      this.tooltip.replaceChildren(h("strong", {}, query, " \u2190 ", key), h("span", {}, told(view, cell)));
    }
    this.tooltip.style.left = `${Math.min(x + 8, this.element.clientWidth - this.tooltip.offsetWidth + 6)}px`;
    this.tooltip.style.top = `${y + 18}px`;
  }
}

function button(name: string, sign: string, act: () => void): HTMLElement {
  return h("button", { type: "button", "aria-label": name, title: name, click: act }, sign);
}

/** A cell's value in words. */
function told(view: View, { row, column }: Cell): string {
  const { norm } = view.state;
  const { diverging } = view.palette;
  const value = valueAt(view, row, column);
  if (Number.isNaN(value)) return "not there at this scope";
  const unit = norm === "none" ? "" : diverging ? " points" : ` of its ${norm}`;
  return format.cell(value, norm, diverging) + unit;
}
