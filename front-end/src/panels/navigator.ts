/** Where one is in long results: all of each, small, in blocks; a click, numbers or a token to find go elsewhere. */
import { palette } from "../draw/colour";
import { h, sized } from "../draw/dom";
import type { Ink } from "../draw/ink";
import { cellsOf } from "../draw/mapmarks";
import { type Mark, paintMarks } from "../draw/marks";
import type { Pane } from "../model/pane";
import type { State } from "../model/state";
import { fittedPlace, longest, type Place, type WindowFacts } from "../model/window";
import { ElementPanel } from "./panel";

const SIZE = 120;

export interface Where {
  place: Place | null;
  /** Of every analysis what is known of its windows; null where it is whole. */
  facts: readonly (WindowFacts | null)[];
  state: State;
  ink: Ink;
  dark: boolean;
}

/** What the navigator may ask for; nothing where nobody is there to read windows. */
export interface Going {
  look(place: Place | null): void;
  /** Look at the cell that is chosen. */
  inside(): void;
  /** Look at the next token with some letters in it. */
  find(text: string): void;
}

export class Navigator extends ElementPanel<Where> {
  readonly element: HTMLElement;
  private readonly canvases: HTMLCanvasElement[];
  private readonly told = h("p", { role: "status" });
  private readonly row = number("Rows from");
  private readonly column = number("columns from");
  private readonly search = h("input", {
    type: "search",
    placeholder: "Find in all of it",
    "aria-label": "Find a token in all of the text",
    autocomplete: "off",
    spellcheck: "false",
  });
  private readonly inside = h(
    "button",
    { type: "button", class: "quiet", title: "Look at the chosen cell, token by token (g)" },
    "Look inside",
  );
  private readonly back = h("button", { type: "button", class: "quiet", title: "All of it, in blocks (g)" }, "Whole");
  private where: Where | null = null;

  constructor(
    private readonly panes: readonly Pane[],
    private readonly going: Going | null,
  ) {
    super();
    this.canvases = panes.map(() =>
      h("canvas", { class: "whole", "aria-hidden": "true", title: "Click to look at a part of the map" }),
    );
    this.canvases.forEach((canvas, index) => {
      canvas.addEventListener("click", (event) => this.clicked(event, index));
    });
    this.inside.addEventListener("click", () => going?.inside());
    this.back.addEventListener("click", () => going?.look(null));
    this.search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      going?.find(this.search.value);
    });
    this.element = h("section", { class: "card navigator", "aria-label": "Where in the text" }, ...this.canvases);
    this.element.append(h("div", {}, this.told, this.places()));
  }

  private places(): HTMLFormElement {
    const step = (sign: string, name: string, by: number): HTMLElement =>
      h(
        "button",
        { type: "button", class: "quiet", "aria-label": name, title: name, click: () => this.step(by) },
        sign,
      );
    const form = h(
      "form",
      { class: "places", hidden: this.going === null },
      this.row.element,
      this.column.element,
      h("button", { type: "submit", class: "quiet" }, "Look"),
      step("\u2196", "Window before this one", -1),
      step("\u2198", "Window after this one", 1),
      this.inside,
      this.back,
      this.search,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.go({ row: this.row.value, column: this.column.value });
    });
    return form;
  }

  update(where: Where): void {
    this.where = where;
    const { place, facts } = where;
    this.hide(this.facts === null);
    if (!this.facts) return;
    this.row.set(place?.row ?? 0);
    this.column.set(place?.column ?? 0);
    this.back.hidden = place === null;
    this.inside.hidden = place !== null;
    this.told.textContent = this.wording(this.facts, where);
    facts.forEach((one, index) => {
      const canvas = this.canvases[index]!;
      canvas.hidden = one === null;
      canvas.classList.toggle("still", this.going === null);
      if (one) this.draw(canvas, this.panes[index]!, one, where);
    });
  }

  /** Say that something is being done, or went wrong. */
  say(text: string): void {
    this.told.textContent = text;
  }

  private get facts(): WindowFacts | null {
    return this.where && longest(this.where.facts);
  }

  private wording(facts: WindowFacts, { place, state }: Where): string {
    const { queries, keys, block, window, source } = facts;
    const whole = `${queries} queries by ${keys} keys in blocks of ${block} tokens: keys added up, queries averaged.`;
    if (this.going === null) return `${whole} A served page (normscope serve) also looks inside.`;
    if (!place) return `${whole} Click in the small map, or type where to begin, to see single tokens.`;
    const range = (start: number, tokens: number): string => `${start} to ${Math.min(tokens, start + window) - 1}`;
    const begun = source === null ? "" : `, the source from ${source} on`;
    const rows = `Rows ${range(place.row, queries)} of ${queries}, columns ${range(place.column, keys)} of ${keys}${begun}.`;
    const shares =
      state.norm === "column"
        ? "Shares of a column are of these rows alone."
        : `The columns around them are in blocks of ${block}, so that every row is whole.`;
    return `${rows} ${shares}`;
  }

  private go(place: Place): void {
    if (this.facts) this.going?.look(fittedPlace(place, this.facts));
  }

  private step(by: number): void {
    const window = this.facts?.window ?? 0;
    const { row, column } = this.where?.place ?? { row: -window, column: -window };
    this.go({ row: row + by * window, column: column + by * window });
  }

  private clicked(event: MouseEvent, index: number): void {
    const facts = this.where?.facts[index];
    if (!facts) return;
    const at = (offset: number): number => offset / scaleOf(facts) - facts.window / 2;
    this.go({ row: at(event.offsetY), column: at(event.offsetX) });
  }

  private draw(canvas: HTMLCanvasElement, pane: Pane, facts: WindowFacts, where: Where): void {
    const { place, state: shared, ink, dark } = where;
    const { queries, keys, window } = facts;
    const state = pane.state({ ...shared, units: "token", special: true });
    const lens = pane.lens(state);
    const colours = palette(state.colours, lens.colouring(state), { diverging: lens.signed(state), dark });
    const scale = scaleOf(facts);
    const [width, height] = [keys * scale, queries * scale];
    const context = sized(canvas, width, height);
    const whole = { x: 0, y: 0, width, height };
    const marks: Mark[] = [
      { kind: "rect", ...whole, fill: ink.hatch },
      { kind: "bitmap", ...whole, bitmap: cellsOf(lens.painted(state), colours, null) },
    ];
    if (place) {
      const { row, column } = fittedPlace(place, facts);
      const side = (tokens: number): number => Math.max(4, Math.min(window, tokens) * scale);
      const box = { x: column * scale, y: row * scale, width: side(keys), height: side(queries) };
      marks.push({ kind: "rect", ...box, stroke: ink.accent, lineWidth: 2 });
    }
    paintMarks(context, marks);
  }
}

function scaleOf({ queries, keys }: WindowFacts): number {
  return SIZE / Math.max(queries, keys);
}

function number(name: string): { element: HTMLElement; readonly value: number; set(value: number): void } {
  const input = h("input", { type: "number", min: 0, step: 1 });
  return {
    element: h("label", { class: "menu" }, h("span", {}, name), input),
    get value(): number {
      return Number(input.value) || 0;
    },
    set: (value) => {
      input.value = String(value);
    },
  };
}
