/** Where one is in a long result: all of it, small, in blocks; a click or numbers go elsewhere. */
import { palette } from "../draw/colour";
import { h, sized } from "../draw/dom";
import { cellsOf, type Ink } from "../draw/paint";
import type { Pane } from "../model/pane";
import type { State } from "../model/state";
import { fittedPlace, type Place, type WindowFacts } from "../model/window";
import { ElementPanel } from "./panel";

const SIZE = 120;

export interface Where {
  place: Place | null;
  state: State;
  ink: Ink;
  dark: boolean;
}

export class Navigator extends ElementPanel<Where> {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", {
    class: "whole",
    "aria-hidden": "true",
    title: "Click to look at a part of the map",
  });
  private readonly told = h("p", { role: "status" });
  private readonly row = number("Rows from");
  private readonly column = number("columns from");
  private readonly back = h("button", { type: "button", class: "quiet", click: () => this.go(null) }, "Whole text");
  private where: Where | null = null;

  /** `go` is null where nobody is there to read windows. */
  constructor(
    private readonly pane: Pane,
    private readonly facts: WindowFacts,
    private readonly look: ((place: Place | null) => void) | null,
  ) {
    super();
    this.canvas.addEventListener("click", (event) => this.clicked(event));
    const step = (sign: string, name: string, by: number): HTMLElement =>
      h(
        "button",
        { type: "button", class: "quiet", "aria-label": name, title: name, click: () => this.step(by) },
        sign,
      );
    const form = h(
      "form",
      { class: "places", hidden: look === null },
      this.row.element,
      this.column.element,
      h("button", { type: "submit", class: "quiet" }, "Look"),
      step("\u2196", "Window before this one", -1),
      step("\u2198", "Window after this one", 1),
      this.back,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.go({ row: this.row.value, column: this.column.value });
    });
    this.element = h("section", { class: "card navigator", "aria-label": "Where in the text" }, this.canvas);
    this.element.append(h("div", {}, this.told, form));
  }

  update(where: Where): void {
    this.where = where;
    const { place } = where;
    this.row.set(place?.row ?? 0);
    this.column.set(place?.column ?? 0);
    this.back.hidden = place === null;
    this.told.textContent = this.wording(place);
    this.canvas.classList.toggle("still", this.look === null);
    this.draw(where);
  }

  /** Say that something is being done, or went wrong. */
  say(text: string): void {
    this.told.textContent = text;
  }

  private wording(place: Place | null): string {
    const { queries, keys, block, window } = this.facts;
    const whole = `${queries} queries by ${keys} keys in blocks of ${block} tokens: keys added up, queries averaged.`;
    if (this.look === null) return `${whole} A served page (normscope serve) also looks inside.`;
    if (!place) return `${whole} Click in the small map, or type where to begin, to see single tokens.`;
    const range = (start: number, tokens: number): string => `${start} to ${Math.min(tokens, start + window) - 1}`;
    const rows = `Rows ${range(place.row, queries)} of ${queries}, columns ${range(place.column, keys)} of ${keys}.`;
    return `${rows} The columns around them are in blocks of ${block}, so that every row is whole.`;
  }

  private go(place: Place | null): void {
    this.look?.(place && fittedPlace(place, this.facts));
  }

  private step(by: number): void {
    const { row, column } = this.where?.place ?? { row: -this.facts.window, column: -this.facts.window };
    this.go({ row: row + by * this.facts.window, column: column + by * this.facts.window });
  }

  private get scale(): number {
    return SIZE / Math.max(this.facts.queries, this.facts.keys);
  }

  private clicked(event: MouseEvent): void {
    const { window } = this.facts;
    const at = (offset: number): number => offset / this.scale - window / 2;
    this.go({ row: at(event.offsetY), column: at(event.offsetX) });
  }

  private draw({ place, state: shared, ink, dark }: Where): void {
    const { queries, keys, window } = this.facts;
    const state = this.pane.state({ ...shared, units: "token", special: true });
    const lens = this.pane.lens(state);
    const colours = palette(state.colours, lens.colouring(state), { diverging: lens.signed(state), dark });
    const context = sized(this.canvas, SIZE, SIZE);
    const [width, height] = [keys * this.scale, queries * this.scale];
    context.fillStyle = ink.hatch;
    context.fillRect(0, 0, width, height);
    context.imageSmoothingQuality = "high";
    context.drawImage(cellsOf(lens.painted(state), colours, null), 0, 0, width, height);
    if (!place) return;
    context.strokeStyle = ink.accent;
    context.lineWidth = 2;
    const side = Math.max(4, window * this.scale);
    context.strokeRect(place.column * this.scale, place.row * this.scale, side, side);
  }
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
