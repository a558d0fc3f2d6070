/** The text itself: every token tinted by what the chosen query took from it, with lines to those that gave most. */
import { scaleLinear } from "d3-scale";
import { inkOn, shade } from "../draw/colour";
import { bdi, h, s } from "../draw/dom";
import { type View, valueAt } from "../draw/view";
import { label, type Units } from "../model/tokens";
import { type Context, Panel } from "./panel";

const MOST_LINES = 12;

export class Ribbon extends Panel {
  readonly element: HTMLElement;
  private readonly text = h("div", { class: "tokens" });
  private readonly lines = s("svg", { class: "lines", "aria-hidden": "true" });
  private readonly box: HTMLElement;
  private keys: HTMLButtonElement[] = [];
  private built: Units | null = null;
  private view: View | null = null;

  constructor(private readonly context: Context) {
    super();
    this.box = h("div", { class: "ribbon" }, this.text, this.lines);
    this.element = h(
      "section",
      { class: "card" },
      h("header", {}, h("h2", {}, "Text"), h("span", { class: "hint" }, "click a token")),
      this.box,
    );
    this.lifetime.observeSize(this.box, () => this.view && this.drawLines(this.view));
  }

  update(view: View): void {
    this.view = view;
    if (this.built !== view.keys) this.build(view);
    const { focus, palette, keys } = view;
    const query = this.keyOfQuery(view, focus.row);
    const painted = { ...view, matrix: view.lens.painted(view.state) };
    this.keys.forEach((button, column) => {
      const value = valueAt(painted, focus.row, column);
      const colour = Number.isNaN(value) ? "" : palette.css[shade(value, palette)]!;
      button.style.background = colour;
      button.style.color = colour === "" ? "" : inkOn(colour);
      button.classList.toggle("missing", colour === "");
      button.classList.toggle("special", keys.special[column] ?? false);
      button.classList.toggle("query", column === query);
    });
    this.drawLines(view);
  }

  private build(view: View): void {
    const { keys } = view;
    this.built = keys;
    const table = view.lens.analysis.keys;
    const children: Node[] = [];
    let group = keys.group[0];
    let word: string | null = null;
    if (new Set(keys.group).size > 1) children.push(h("span", { class: "group" }, `${group}`));
    this.keys = keys.texts.map((text, column) => {
      if (keys.group[column] !== group) {
        group = keys.group[column];
        children.push(h("span", { class: "group" }, `${group}`));
      }
      const first = keys.members[column]![0]!;
      const id = `${keys.group[column]}/${table.word[first]}`;
      const joined = table.word[first] !== -1 && id === word;
      word = id;
      const button = h(
        "button",
        { type: "button", class: joined ? "joined" : "", "aria-label": `Token ${column + 1}: ${label(text)}` },
        bdi(label(text)),
      );
      button.addEventListener("click", () => this.clicked(column));
      button.addEventListener("pointerenter", () => this.context.hover(this.cellOf(column)));
      button.addEventListener("pointerleave", () => this.context.hover(null));
      children.push(button);
      return button;
    });
    this.text.replaceChildren(...children);
  }

  /** A token of the text as a query, where it is one; otherwise as a key of the chosen query. */
  private cellOf(column: number): { row: number; column: number } {
    const row = this.queryOfKey(this.view!, column);
    return row >= 0 ? { row, column: -1 } : { row: this.view!.selected.row, column };
  }

  private clicked(column: number): void {
    this.context.choose(this.cellOf(column));
  }

  private queryOfKey({ lens, keys, queries }: View, column: number): number {
    const token = keys.members[column]?.[0] ?? -1;
    if (keys.group[column] === "source") return -1;
    const position = lens.analysis.keys.position[token];
    return queries.of[lens.analysis.queries.position.indexOf(position ?? -1)] ?? -1;
  }

  private keyOfQuery({ lens, keys, queries }: View, row: number): number {
    const position = lens.analysis.queries.position[queries.members[row]?.[0] ?? -1];
    const token = lens.analysis.keys.position.findIndex(
      (other, index) => other === position && lens.analysis.keys.group?.[index] !== "source",
    );
    return keys.of[token] ?? -1;
  }

  private drawLines(view: View): void {
    const { focus, palette, keys } = view;
    const from = this.keyOfQuery(view, focus.row);
    const entries = keys.shown
      .map((_, column) => ({ column, value: valueAt(view, focus.row, column) }))
      .filter(({ column, value }) => column !== from && !Number.isNaN(value) && value !== 0)
      .sort((a, b) => Math.abs(b.value) - Math.abs(a.value))
      .slice(0, MOST_LINES);
    const most = Math.abs(entries[0]?.value ?? 1);
    const width = scaleLinear([0, most], [0.4, 3.5]);
    const frame = this.text.getBoundingClientRect();
    const middleOf = (column: number): { x: number; y: number; top: number } | null => {
      const box = this.keys[column]?.getBoundingClientRect();
      return box
        ? { x: box.x - frame.x + box.width / 2, y: box.y - frame.y + box.height / 2, top: box.y - frame.y }
        : null;
    };
    const origin = middleOf(from);
    this.lines.setAttribute("width", String(frame.width));
    this.lines.setAttribute("height", String(frame.height));
    this.lines.replaceChildren(
      ...entries.flatMap(({ column, value }) => {
        const end = middleOf(column);
        if (!origin || !end) return [];
        const lift = Math.min(origin.top, end.top) - 4 - Math.min(26, 5 + Math.abs(origin.x - end.x) / 10);
        const d = `M${origin.x},${origin.top}C${origin.x},${lift} ${end.x},${lift} ${end.x},${end.top}`;
        const stroke = palette.diverging ? palette.css[shade(value, palette)]! : view.ink.accent;
        return [
          s("path", {
            d,
            stroke,
            "stroke-width": width(Math.abs(value)),
            "stroke-opacity": 0.25 + (0.65 * Math.abs(value)) / most,
          }),
        ];
      }),
    );
  }
}
