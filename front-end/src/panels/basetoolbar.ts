/** What the toolbars of maps and flows have in common: controls as functions of the state. */
import { type Choice, type Control, type ControlView, segmented } from "../draw/controls";
import type { State } from "../model/state";
import type { Store } from "../model/store";
import type { UnitKind } from "../model/tokens";
import { Panel } from "./panel";

const UNITS: Choice[] = [
  { value: "token", label: "Subwords" },
  { value: "word", label: "Words" },
  { value: "sentence", label: "Sentences" },
  { value: "block", label: "Blocks", title: "Blocks with the same number of tokens" },
];
const THEMES: Choice[] = [
  { value: "auto", label: "Auto" },
  { value: "light", label: "Light" },
  { value: "dark", label: "Dark" },
];
const STACKS: Choice[] = [
  { value: "encoder", label: "Encoder" },
  { value: "decoder", label: "Decoder" },
];

export abstract class BaseToolbar extends Panel<State> {
  private readonly controls: { control: Control; view: (state: State) => ControlView }[] = [];

  constructor(
    protected readonly store: Store,
    private readonly views: Choice[],
  ) {
    super();
  }

  update(state: State): void {
    for (const { control, view } of this.controls) control.update(view(state));
  }

  /** Add a control, with what it shows of a state. */
  protected add(control: Control, view: (state: State) => ControlView): HTMLElement {
    this.controls.push({ control, view });
    return control.element;
  }

  /** A field of the state as a few choices. */
  protected segments(
    field: keyof State,
    legend: string,
    choices: Choice[],
    view: (state: State) => Partial<ControlView> = () => ({}),
  ): HTMLElement {
    const control = segmented(legend, choices, (value) => this.store.set({ [field]: value }));
    return this.add(control, (state) => ({ value: String(state[field]), ...view(state) }));
  }

  protected view(): HTMLElement {
    return this.segments("view", "View", this.views);
  }

  protected theme(): HTMLElement {
    return this.segments("theme", "Theme", THEMES);
  }

  protected stacks(): HTMLElement {
    return this.segments("part", "Stack", STACKS);
  }

  /** The choice of units, of the kinds that there are. */
  protected units(kindsOf: (state: State) => readonly UnitKind[]): HTMLElement {
    return this.segments("units", "Units", UNITS, (state) => {
      const kinds: readonly string[] = kindsOf(state);
      return { choices: UNITS.filter(({ value }) => kinds.includes(value)) };
    });
  }
}
