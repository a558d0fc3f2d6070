/** One cell at every scope of the chosen layer, as a line along the chain. */
import { max } from "d3-array";
import { h, s } from "../draw/dom";
import { tickFormat } from "../draw/legend";
import { lineChartMarks } from "../draw/linechart";
import { svgOf } from "../draw/marks";
import { named, type View } from "../draw/view";
import * as format from "../model/format";
import { stepsOf } from "../model/scopes";
import { Panel } from "./panel";

const HEIGHT = 128;
const LONG_CHAIN = 8;

export class ChainChart extends Panel {
  readonly element: HTMLElement;
  private readonly svg = s("svg", { role: "img", height: HEIGHT });
  private readonly title = h("h2");

  constructor() {
    super();
    this.element = h("section", { class: "card" }, h("header", {}, this.title), this.svg);
  }

  update(view: View): void {
    const { state, lens, focus, queries, keys } = view;
    const { scopes, scopeNames } = lens.analysis;
    this.element.hidden = scopes.length < 2;
    if (this.element.hidden) return;
    const column = focus.column >= 0 ? focus.column : largestKey(view);
    // Of a token's own cell there is something to see only where own tokens are in.
    const own = view.own[focus.row] === column ? "shown" : state.own;
    const points = scopeNames.map((scope): [string, number] => {
      const matrix = lens.matrix({ ...state, scope, base: "", own });
      return [scope, matrix.values[focus.row * matrix.columns + column] ?? Number.NaN];
    });
    this.title.replaceChildren(
      named(queries.shown[focus.row]),
      " \u2190 ",
      named(keys.shown[column]),
      " through the chain",
    );
    const names = new Map(stepsOf(scopes).map(({ scope, short }) => [scope, short]));
    const most = max(points, ([, value]) => value) ?? 1;
    const width = Math.max(240, this.element.clientWidth - 28);
    const marks = lineChartMarks({
      width,
      height: HEIGHT,
      names: scopeNames,
      lines: [{ main: true, points }],
      tick: tickFormat(state.norm, most),
      current: state.scope,
      ink: view.ink,
      // In a long chain there is no room even for the pluses.
      short: (scope) => (names.get(scope) ?? scope).replace(scopes.length > LONG_CHAIN ? "+ " : "", ""),
    });
    this.svg.setAttribute("width", String(width));
    this.svg.replaceChildren(...svgOf(marks));
    const texts = points.map(([scope, value]) => `${scope} ${format.cell(value, state.norm, false)}`);
    this.svg.setAttribute("aria-label", `Through the chain: ${texts.join(", ")}`);
  }
}

function largestKey({ matrix, focus }: View): number {
  const row = matrix.values.subarray(focus.row * matrix.columns, (focus.row + 1) * matrix.columns);
  let best = 0;
  row.forEach((value, column) => {
    if (Math.abs(value) > Math.abs(row[best]!) || Number.isNaN(row[best]!)) best = column;
  });
  return best;
}
