/** How the maps are shown: normalisation, units, special tokens, heads, difference to another scope, colours. */
import { type Choice, menu, popover, toggle } from "../draw/controls";
import { h } from "../draw/dom";
import type { Analysis } from "../model/analysis";
import type { Pane } from "../model/pane";
import type { State } from "../model/state";
import type { Store } from "../model/store";
import { kindsOf } from "../model/tokens";
import { BaseToolbar } from "./basetoolbar";

/** With more kinds of units than this the toolbar is full. */
const MOST_UNITS = 3;

const MEASURES: Choice[] = [
  { value: "norm", label: "Norm", title: "Norm of the vector that a token contributes" },
  { value: "projection", label: "Projection", title: "Its signed projection onto the state; a row sums to 1" },
];
const NORMS: Choice[] = [
  { value: "none", label: "Raw", title: "Values without normalisation" },
  { value: "row", label: "Rows", title: "Every query\u2019s row sums to 1" },
  { value: "column", label: "Columns", title: "Every key\u2019s column sums to 1" },
];
const OWN_TOKENS: Choice[] = [
  { value: "shown", label: "Shown" },
  { value: "grey", label: "Grey", title: "Own tokens are grey; colours are scaled to the others" },
  {
    value: "out",
    label: "Out",
    title: "Own tokens are left out and the rest normalised; their shares are next to the rows",
  },
];
const COLOURS: Choice[] = [
  { value: "normscope", label: "Normscope" },
  { value: "magma", label: "Magma" },
  { value: "viridis", label: "Viridis" },
  { value: "cividis", label: "Cividis" },
  { value: "greys", label: "Greys" },
];
const SCALES: Choice[] = [
  { value: "auto", label: "Auto", title: "Square root, or logarithmic where values differ by orders of magnitude" },
  { value: "linear", label: "Linear" },
  { value: "root", label: "Root", title: "Square root: shows small values better" },
  { value: "log", label: "Log", title: "Logarithmic: shows values of different orders of magnitude" },
  { value: "quantile", label: "Rank", title: "Every colour stands for the same number of cells" },
];
const RANGES: Choice[] = [
  { value: "map", label: "This map" },
  { value: "shared", label: "All maps", title: "One range for all layers and scopes, so that they can be compared" },
];

export class Toolbar extends BaseToolbar {
  readonly element: HTMLElement;

  constructor(
    store: Store,
    private readonly panes: Pane[],
    views: Choice[],
  ) {
    super(store, views);
    const some = (has: (analysis: Analysis) => unknown): boolean => panes.some(({ analysis }) => has(analysis));
    const ownTokens = this.segments("own", "Own token", OWN_TOKENS, (state) => ({ value: panes[0]!.state(state).own }));
    ownTokens.classList.add("named");
    this.element = h(
      "div",
      {
        class: isCrowded(panes) ? "toolbar crowded" : "toolbar",
        role: "group",
        "aria-label": "How the maps are shown",
      },
      some(({ encoder }) => encoder) && this.stacks(),
      some(({ projections }) => projections) && this.segments("measure", "Measure", MEASURES),
      this.segments("norm", "Normalise", NORMS),
      this.units((state) => this.analyses(state).flatMap(({ keys }) => kindsOf(keys))),
      ownTokens,
      this.specialTokens(),
      this.heads(),
      this.difference(),
      h("div", { class: "end" }, this.view(), this.display()),
    );
  }

  /** The analyses as a state shows them: of the encoder or decoder, with norms or projections. */
  private analyses(state: State): Analysis[] {
    return this.panes.map((pane) => pane.lens(state).analysis);
  }

  private specialTokens(): HTMLElement {
    const control = toggle("Special tokens", (special) => this.store.set({ special }));
    return this.add(control, (state) => ({
      value: String(state.special),
      disabled: !this.analyses(state).some(({ keys }) => keys.special.includes(1)),
    }));
  }

  private heads(): HTMLElement {
    const control = menu("Head", [], (value) => this.store.set({ head: Number(value) }));
    return this.add(control, (state) => {
      const [analysis] = this.analyses(state);
      const numbers = analysis!.heads?.numbers ?? [];
      const separate = analysis!.hasHeads(state.scope);
      return {
        value: separate ? String(state.head) : "0",
        choices: [{ value: "0", label: "all" }, ...numbers.map(String).map((head) => ({ value: head, label: head }))],
        hidden: numbers.length === 0,
        disabled: !separate,
        title: separate ? "One head, or the sum of all" : `At ${state.scope} the heads are already mixed`,
      };
    });
  }

  private difference(): HTMLElement {
    const control = menu("Difference to", [], (base) => this.store.set({ base }));
    return this.add(control, (state) => {
      const [analysis] = this.analyses(state);
      const scopes = analysis!.scopeNames.map((scope) => ({ value: scope, label: scope }));
      return { value: state.base, choices: [{ value: "", label: "nothing" }, ...scopes], marked: state.base !== "" };
    });
  }

  private display(): HTMLElement {
    const colours = menu("Colours", COLOURS, (value) => this.store.set({ colours: value as State["colours"] }));
    return popover(
      "Display",
      "display",
      this.add(colours, (state) => ({ value: state.colours })),
      this.segments("scale", "Colour scale", SCALES),
      this.segments("range", "Colour range", RANGES),
      this.theme(),
    );
  }
}

/** Whether there is so much to choose that the names of controls have no room on a usual screen. */
function isCrowded(panes: Pane[]): boolean {
  if (panes.length > 1) return true;
  return panes.some(
    ({ analysis }) =>
      analysis.encoder || analysis.projections || analysis.heads || kindsOf(analysis.keys).length > MOST_UNITS,
  );
}
