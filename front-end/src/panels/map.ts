/** The map as a view: the heat map with its tools, a search for tokens, and a tooltip at the cell under the pointer. */
import { bdi, h } from "../draw/dom";
import type { Cell } from "../draw/geometry";
import { HeatMap } from "../draw/heatmap";
import { greyedOf, ownBarsOf, titleOf, type View, valueAt } from "../draw/view";
import * as format from "../model/format";
import type { TokenTable } from "../model/payload";
import { label, running, shortLabel } from "../model/tokens";
import { type Context, type MainPanel, Panel } from "./panel";
import { TokenSearch } from "./search";

const ZOOM_STEP = 1.5;
/** Tokens of the text before and after one in a tooltip. */
const AROUND = 4;

export class MapPanel extends Panel implements MainPanel {
  readonly element: HTMLElement;
  readonly tools: HTMLElement;
  private readonly heatmap: HeatMap;
  private readonly tooltip = h("div", { class: "tooltip", hidden: true });
  private readonly search: TokenSearch;
  private view: View | null = null;

  constructor(private readonly context: Context) {
    super();
    this.heatmap = new HeatMap(
      { hover: (cell, x, y) => this.pointed(cell, x, y), choose: (cell) => context.choose(cell) },
      this.lifetime,
    );
    this.element = h("div", { class: "map-view" }, this.heatmap.element, this.tooltip);
    this.search = new TokenSearch(context, () => this.view && this.draw(this.view));
    const { heatmap } = this;
    const zoom = h(
      "div",
      { class: "zoom", role: "group", "aria-label": "Zoom" },
      button("Zoom out", "\u2212", () => heatmap.setZoom(heatmap.zoomed / ZOOM_STEP)),
      button("Fit", "fit", () => heatmap.setZoom(1)),
      button("Zoom in", "+", () => heatmap.setZoom(heatmap.zoomed * ZOOM_STEP)),
    );
    this.tools = h("div", { class: "map-tools" }, this.search.element, zoom);
  }

  update(view: View): void {
    this.view = view;
    this.search.update(view);
    this.draw(view);
  }

  point(cell: Cell | null): void {
    this.heatmap.highlight(cell);
  }

  find(): void {
    this.search.focus();
  }

  press(key: string): boolean {
    return this.heatmap.press(key);
  }

  private draw(view: View): void {
    const { matrix, state, lens, dark } = view;
    const size = `${matrix.rows} queries by ${matrix.columns} keys`;
    const description = `${titleOf(view)}: ${size}. Arrow keys move, plus and minus zoom.`;
    const { matches } = this.search;
    const grey = greyedOf(state, lens, dark);
    this.heatmap.show({
      ...view,
      matrix: lens.painted(state),
      label: description,
      grey,
      ownBars: ownBarsOf(view),
      matches,
    });
  }

  private pointed(cell: Cell | null, x: number, y: number): void {
    this.context.hover(cell);
    const { view } = this;
    this.tooltip.hidden = !cell || !view || cell.row < 0;
    if (!cell || !view || cell.row < 0) return;
    const { analysis } = view.lens;
    const query = bdi(shortLabel(view.queries.shown[cell.row] ?? "", 60));
    const lines: Node[] = [h("strong", {}, query)];
    if (cell.column >= 0) {
      const key = bdi(shortLabel(view.keys.shown[cell.column] ?? "", 60));
      lines[0] = h("strong", {}, query, " \u2190 ", key);
      lines.push(h("span", {}, valueText(view, cell)));
    } else {
      lines.push(h("span", {}, `own token: ${format.share(view.ownShares[cell.row] ?? Number.NaN)} of the row`));
    }
    if (!analysis.picture) {
      lines.push(around("query", analysis.queries, view.queries.members[cell.row] ?? []));
      if (cell.column >= 0) lines.push(around("key", analysis.keys, view.keys.members[cell.column] ?? []));
    }
    this.tooltip.replaceChildren(...lines);
    this.tooltip.style.left = `${Math.max(0, Math.min(x + 8, this.element.clientWidth - this.tooltip.offsetWidth + 6))}px`;
    this.tooltip.style.top = `${y + 18}px`;
  }
}

function button(name: string, sign: string, act: () => void): HTMLElement {
  return h("button", { type: "button", "aria-label": name, title: name, click: act }, sign);
}

/** Some tokens with those around them, as text. */
function around(name: string, table: TokenTable, members: number[]): HTMLElement {
  const [first, last] = [members[0] ?? 0, members.at(-1) ?? 0];
  const group = table.group?.[first];
  const text = (from: number, to: number): string => {
    const indices = [...table.token.keys()]
      .slice(Math.max(0, from), Math.max(0, to))
      .filter((at) => table.group?.[at] === group);
    return running(indices.map((at) => table.text?.[at] ?? table.token[at]!));
  };
  const before = label(text(first - AROUND, first))
    .replaceAll("\u2423", " ")
    .trim();
  const after = label(text(last + 1, last + 1 + AROUND))
    .replaceAll("\u2423", " ")
    .trim();
  const own = label(text(first, last + 1))
    .replaceAll("\u2423", " ")
    .trim();
  return h(
    "span",
    { class: "around" },
    h("i", {}, name),
    " ",
    bdi(first > AROUND ? `\u2026 ${before} ` : `${before} `),
    h("b", {}, bdi(shortLabel(own, 40).replaceAll("\u2423", " "))),
    bdi(last + AROUND < table.token.length - 1 ? ` ${after} \u2026` : ` ${after}`),
  );
}

/** A cell's value in words. */
function valueText(view: View, { row, column }: Cell): string {
  const { norm, own } = view.state;
  const { diverging } = view.palette;
  const value = valueAt(view, row, column);
  if (own === "out" && view.own[row] === column)
    return `own token: ${format.share(view.ownShares[row]!)} of the row, left out`;
  if (Number.isNaN(value)) return "not available at this scope";
  const unit =
    norm === "none" ? "" : diverging ? " points" : ` of its ${norm}${own === "out" ? " without own tokens" : ""}`;
  return format.cell(value, norm, diverging) + unit;
}
