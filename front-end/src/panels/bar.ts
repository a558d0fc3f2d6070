/** What the toolbars of maps and flows have in common: controls that follow the state, the choice of view and theme. */
import { type Choice, segmented } from "../draw/controls";
import type { State } from "../model/state";
import type { Store } from "../model/store";
import { ElementPanel } from "./panel";

export const UNITS: Choice[] = [
  { value: "token", label: "Subwords" },
  { value: "word", label: "Words" },
  { value: "sentence", label: "Sentences" },
  { value: "block", label: "Blocks", title: "As many tokens each" },
];

export abstract class Bar extends ElementPanel<State> {
  protected readonly syncs: ((state: State) => void)[] = [];

  constructor(
    protected readonly store: Store,
    private readonly views: Choice[],
  ) {
    super();
  }

  update(state: State): void {
    for (const sync of this.syncs) sync(state);
  }

  protected segments(name: keyof State, legend: string, choices: Choice[]): HTMLElement {
    const control = segmented(legend, choices, (value) => this.store.set({ [name]: value }));
    this.syncs.push((state) => control.set(String(state[name])));
    return control.element;
  }

  protected view(): HTMLElement {
    const element = this.segments("view", "View", this.views);
    element.hidden = this.views.length < 2;
    return element;
  }

  protected theme(): HTMLElement {
    return this.segments("theme", "Theme", [
      { value: "auto", label: "Auto" },
      { value: "light", label: "Light" },
      { value: "dark", label: "Dark" },
    ]);
  }

  protected stacks(): HTMLElement {
    return this.segments("part", "Stack", [
      { value: "encoder", label: "Encoder" },
      { value: "decoder", label: "Decoder" },
    ]);
  }
}
