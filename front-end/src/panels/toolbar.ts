/** How the maps are shown: normalisation, units, special tokens, heads, difference to another scope, colours. */
import { type Choice, menu, popover, segmented, toggle } from "../draw/controls";
import { h } from "../draw/dom";
import type { Pane } from "../model/pane";
import type { State } from "../model/state";
import type { Store } from "../model/store";
import { kindsOf } from "../model/tokens";
import { Bar, UNITS } from "./bar";

/** With more kinds of units than this the toolbar is full. */
const MOST_UNITS = 3;

export class Toolbar extends Bar {
  readonly element: HTMLElement;

  constructor(
    store: Store,
    private readonly panes: Pane[],
    views: Choice[],
  ) {
    super(store, views);
    this.element = h(
      "div",
      { class: "toolbar", role: "group", "aria-label": "How the maps are shown" },
      this.part(),
      this.measure(),
      this.segments("norm", "Normalise", [
        { value: "none", label: "Raw", title: "Values as they are" },
        { value: "row", label: "Rows", title: "Every query\u2019s row sums to 1" },
        { value: "column", label: "Columns", title: "Every key\u2019s column sums to 1" },
      ]),
      this.units(),
      this.own(),
      this.special(),
      this.heads(),
      this.difference(),
      h("div", { class: "end" }, this.view(), this.display()),
    );
    this.element.classList.toggle("crowded", this.crowded);
  }

  /** Whether there is so much to choose that names of groups have no room on a usual screen. */
  private get crowded(): boolean {
    return this.panes.some(
      ({ analysis }) => analysis.encoder || analysis.projections || kindsOf(analysis.keys).length > MOST_UNITS,
    );
  }

  private set(patch: Partial<State>): void {
    this.store.set(patch);
  }

  private part(): HTMLElement | null {
    return this.panes.some((pane) => pane.analysis.encoder) ? this.stacks() : null;
  }

  private measure(): HTMLElement | null {
    if (!this.panes.some(({ analysis }) => analysis.projections)) return null;
    return this.segments("measure", "Measure", [
      { value: "norm", label: "Norm", title: "How long the vector is that a token put in" },
      { value: "projection", label: "Projection", title: "How far it goes along the state: signed, adding up to 1" },
    ]);
  }

  private units(): HTMLElement {
    const control = segmented("Units", UNITS, (value) => this.set({ units: value as State["units"] }));
    this.syncs.push((state) => {
      control.set(state.units);
      control.allow(this.panes.flatMap((pane) => kindsOf(pane.lens(state).analysis.keys)));
    });
    return control.element;
  }

  private own(): HTMLElement {
    const control = segmented(
      "Own token",
      [
        { value: "shown", label: "Shown" },
        { value: "grey", label: "Grey", title: "Grey, and colours are for the others" },
        { value: "out", label: "Out", title: "Left out, the rest normalised; its share is beside each row" },
      ],
      (value) => this.set({ own: value as State["own"] }),
    );
    control.element.classList.add("named");
    this.syncs.push((state) => control.set(this.panes[0]!.state(state).own));
    return control.element;
  }

  private special(): HTMLElement {
    const control = toggle("Special tokens", (on) => this.set({ special: on }));
    this.syncs.push((state) => {
      control.set(String(state.special));
      control.enable(this.panes.some((pane) => pane.lens(state).analysis.keys.special.some((flag) => flag === 1)));
    });
    return control.element;
  }

  private heads(): HTMLElement {
    const control = menu("Head", [], (value) => this.set({ head: Number(value) }));
    let filled = "";
    this.syncs.push((state) => {
      const { analysis } = this.panes[0]!.lens(state);
      const numbers = analysis.heads?.numbers ?? [];
      control.element.hidden = numbers.length === 0;
      if (filled !== numbers.join()) {
        filled = numbers.join();
        control.fill([
          { value: "0", label: "all" },
          ...numbers.map((head) => ({ value: String(head), label: String(head) })),
        ]);
      }
      const apart = analysis.hasHeads(state.scope);
      control.enable(apart);
      control.element.title = apart ? "One head, or all together" : `At ${state.scope} the heads are already mixed`;
      control.set(apart ? String(state.head) : "0");
    });
    return control.element;
  }

  private difference(): HTMLElement {
    const control = menu("Difference to", [], (value) => this.set({ base: value }));
    let filled = "";
    this.syncs.push((state) => {
      const { scopeNames } = this.panes[0]!.lens(state).analysis;
      if (filled !== scopeNames.join()) {
        filled = scopeNames.join();
        control.fill([{ value: "", label: "nothing" }, ...scopeNames.map((scope) => ({ value: scope, label: scope }))]);
      }
      control.element.classList.toggle("on", state.base !== "");
      control.set(state.base);
    });
    return control.element;
  }

  private display(): HTMLElement {
    const colours = menu(
      "Colours",
      [
        { value: "normscope", label: "Normscope" },
        { value: "magma", label: "Magma" },
        { value: "viridis", label: "Viridis" },
        { value: "cividis", label: "Cividis" },
        { value: "greys", label: "Greys" },
      ],
      (value) => this.set({ colours: value as State["colours"] }),
    );
    this.syncs.push((state) => colours.set(state.colours));
    return popover(
      "Display",
      "display",
      colours.element,
      this.segments("scale", "Colour scale", [
        { value: "auto", label: "Auto", title: "Square root, or logarithmic where values are of very different sizes" },
        { value: "linear", label: "Linear" },
        { value: "root", label: "Root", title: "Shows small values better" },
        { value: "log", label: "Log", title: "Shows values of very different sizes" },
        { value: "quantile", label: "Rank", title: "Every colour for as many cells" },
      ]),
      this.segments("range", "Colour range", [
        { value: "map", label: "This map" },
        {
          value: "shared",
          label: "All maps",
          title: "One range for all layers and scopes, so that they can be compared",
        },
      ]),
      this.theme(),
    );
  }
}
