/** The position in long results: a small map of each in blocks; a click, numbers or a search go elsewhere. */
import { palette } from "../draw/colour";
import { h, sized } from "../draw/dom";
import type { Ink } from "../draw/ink";
import { cellsOf } from "../draw/mapmarks";
import { type Mark, paintMarks } from "../draw/marks";
import type { Pane } from "../model/pane";
import type { State } from "../model/state";
import { fittedStart, longest, type WindowFacts, type WindowStart } from "../model/window";
import { Panel } from "./panel";

const SIZE = 120;

export interface NavigatorView {
  start: WindowStart | null;
  /** Of every analysis what is known of its windows; null where it is whole. */
  facts: readonly (WindowFacts | null)[];
  state: State;
  ink: Ink;
  dark: boolean;
}

/** What the navigator can do; null where no host can load windows. */
export interface NavigatorActions {
  show(start: WindowStart | null): void;
  /** From the whole text to the chosen cell, and back. */
  toggle(): void;
  /** Go to the next token with a text in it. */
  find(text: string): void;
}

export class Navigator extends Panel<NavigatorView> {
  readonly element: HTMLElement;
  private readonly canvases: HTMLCanvasElement[];
  private readonly status = h("p", { role: "status" });
  private readonly row = number("Rows from");
  private readonly column = number("columns from");
  private readonly search = h("input", {
    type: "search",
    placeholder: "Find in the whole text",
    "aria-label": "Find a token in the whole text",
    autocomplete: "off",
    spellcheck: "false",
  });
  private readonly inside = h(
    "button",
    { type: "button", class: "quiet", title: "Show the tokens of the chosen cell (g)" },
    "Show tokens",
  );
  private readonly back = h(
    "button",
    { type: "button", class: "quiet", title: "Show the whole text, in blocks (g)" },
    "Whole",
  );
  private view: NavigatorView | null = null;

  constructor(
    private readonly panes: readonly Pane[],
    private readonly actions: NavigatorActions | null,
  ) {
    super();
    this.canvases = panes.map(() => h("canvas", { class: "whole", "aria-hidden": "true", title: "Click to zoom in" }));
    this.canvases.forEach((canvas, index) => {
      canvas.addEventListener("click", (event) => this.clicked(event, index));
    });
    this.inside.addEventListener("click", () => actions?.toggle());
    this.back.addEventListener("click", () => actions?.show(null));
    this.search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      actions?.find(this.search.value);
    });
    this.element = h(
      "section",
      { class: "card navigator", "aria-label": "Position in the text" },
      this.canvases,
      h("div", {}, this.status, this.startForm()),
    );
  }

  private startForm(): HTMLFormElement {
    const step = (sign: string, name: string, by: number): HTMLElement =>
      h(
        "button",
        { type: "button", class: "quiet", "aria-label": name, title: name, click: () => this.step(by) },
        sign,
      );
    const form = h(
      "form",
      { class: "places", hidden: this.actions === null },
      this.row.element,
      this.column.element,
      h("button", { type: "submit", class: "quiet" }, "Go"),
      step("\u2196", "Previous window", -1),
      step("\u2198", "Next window", 1),
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

  update(view: NavigatorView): void {
    this.view = view;
    const { start, facts } = view;
    this.element.hidden = this.facts === null;
    if (!this.facts) return;
    this.row.set(start?.row ?? 0);
    this.column.set(start?.column ?? 0);
    this.back.hidden = start === null;
    this.inside.hidden = start !== null;
    this.status.textContent = this.wording(this.facts, view);
    facts.forEach((one, index) => {
      const canvas = this.canvases[index]!;
      canvas.hidden = one === null;
      canvas.classList.toggle("still", this.actions === null);
      if (one) this.draw(canvas, this.panes[index]!, one, view);
    });
  }

  /** Report progress or an error. */
  report(text: string): void {
    this.status.textContent = text;
  }

  private get facts(): WindowFacts | null {
    return this.view && longest(this.view.facts);
  }

  private wording(facts: WindowFacts, { start, state }: NavigatorView): string {
    const { queries, keys, block, window, source } = facts;
    const whole = `${queries} queries by ${keys} keys in blocks of ${block} tokens: keys summed, queries averaged.`;
    if (this.actions === null) return `${whole} Open it with normscope serve to see single tokens.`;
    if (!start) return `${whole} Click in the small map, or enter a first row and column, to see single tokens.`;
    const range = (start: number, tokens: number): string => `${start} to ${Math.min(tokens, start + window) - 1}`;
    const begun = source === null ? "" : `, the source from ${source} on`;
    const rows = `Rows ${range(start.row, queries)} of ${queries}, columns ${range(start.column, keys)} of ${keys}${begun}.`;
    const shares =
      state.norm === "column"
        ? "Column shares refer to these rows only."
        : `The other columns are in blocks of ${block} tokens, so that every row is complete.`;
    return `${rows} ${shares}`;
  }

  private go(start: WindowStart): void {
    if (this.facts) this.actions?.show(fittedStart(start, this.facts));
  }

  private step(by: number): void {
    const window = this.facts?.window ?? 0;
    const { row, column } = this.view?.start ?? { row: -window, column: -window };
    this.go({ row: row + by * window, column: column + by * window });
  }

  private clicked(event: MouseEvent, index: number): void {
    const facts = this.view?.facts[index];
    if (!facts) return;
    const at = (offset: number): number => offset / scaleOf(facts) - facts.window / 2;
    this.go({ row: at(event.offsetY), column: at(event.offsetX) });
  }

  private draw(canvas: HTMLCanvasElement, pane: Pane, facts: WindowFacts, view: NavigatorView): void {
    const { start, state: shared, ink, dark } = view;
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
    if (start) {
      const { row, column } = fittedStart(start, facts);
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
