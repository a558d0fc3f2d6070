/** What toolbars have in common: controls as functions of the state. */
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
export const THEMES: Choice[] = [
  { value: "auto", label: "Auto" },
  { value: "light", label: "Light" },
  { value: "dark", label: "Dark" },
];
const STACKS: Choice[] = [
  { value: "encoder", label: "Encoder" },
  { value: "decoder", label: "Decoder" },
];

/** What every state has that a toolbar changes. */
type Shared = Pick<State, "theme" | "units">;

export abstract class Toolbox<Fields extends Shared> extends Panel<Fields> {
  private readonly controls: { control: Control; view: (state: Fields) => ControlView }[] = [];

  constructor(protected readonly store: Store<Fields>) {
    super();
  }

  update(state: Fields): void {
    for (const { control, view } of this.controls) control.update(view(state));
  }

  /** Add a control, with what it shows of a state. */
  protected add(control: Control, view: (state: Fields) => ControlView): HTMLElement {
    this.controls.push({ control, view });
    return control.element;
  }

  /** A field of the state as a few choices. */
  protected segments(
    field: keyof Fields & string,
    legend: string,
    choices: Choice[],
    view: (state: Fields) => Partial<ControlView> = () => ({}),
  ): HTMLElement {
    const control = segmented(legend, choices, (value) => this.store.set({ [field]: value } as Partial<Fields>));
    return this.add(control, (state) => ({ value: String(state[field]), ...view(state) }));
  }

  protected theme(): HTMLElement {
    return this.segments("theme", "Theme", THEMES);
  }

  /** The choice of units, of the kinds that there are. */
  protected units(kindsOf: (state: Fields) => readonly UnitKind[]): HTMLElement {
    return this.segments("units", "Units", UNITS, (state) => {
      const kinds: readonly string[] = kindsOf(state);
      return { choices: UNITS.filter(({ value }) => kinds.includes(value)) };
    });
  }
}

/** The toolbars of maps and flows. */
export abstract class BaseToolbar extends Toolbox<State> {
  constructor(
    store: Store,
    private readonly views: Choice[],
  ) {
    super(store);
  }

  protected view(): HTMLElement {
    return this.segments("view", "View", this.views);
  }

  protected stacks(): HTMLElement {
    return this.segments("part", "Stack", STACKS);
  }
}
