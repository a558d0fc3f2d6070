/** What is explained, how much of the flow is drawn, and in which units. */
import { type Choice, menu, percentSlider, popover } from "../../draw/controls";
import { h } from "../../draw/dom";
import { ROLLOUT } from "../../model/state";
import type { Store } from "../../model/store";
import type { Targets } from "../../model/targets";
import { kindsOf, shortLabel, unitsOf } from "../../model/tokens";
import { BaseToolbar } from "../basetoolbar";

export class FlowToolbar extends BaseToolbar {
  readonly element: HTMLElement;

  constructor(
    store: Store,
    views: Choice[],
    private readonly targets: Targets,
    hasEncoder: boolean,
  ) {
    super(store, views);
    this.element = h(
      "div",
      { class: "toolbar", role: "group", "aria-label": "What is explained and how it is shown" },
      hasEncoder && this.stacks(),
      this.target(),
      this.token(),
      this.share(),
      this.units((state) => kindsOf(targets.at(state).explanation.stack(state.part).keys)),
      h("div", { class: "end" }, this.view(), popover("Display", "display", this.theme())),
    );
  }

  private target(): HTMLElement {
    const control = menu("Explain", [], (value) => this.store.set(this.targets.choose(Number(value))));
    control.element.classList.add("target");
    return this.add(control, (state) => ({
      value: String(this.targets.fitted(state.target)),
      choices: this.targets.choices(),
    }));
  }

  /** The token that a rollout leads to. */
  private token(): HTMLElement | null {
    const { tokens } = this.targets;
    if (!tokens) return null;
    const names = unitsOf(tokens, { kind: "token", special: true }).shown;
    const choices = names.map((text, index) => ({ value: String(index), label: shortLabel(text, 24) }));
    const control = menu("Token", choices, (value) => this.store.set({ query: Number(value), depth: -1, token: -1 }));
    return this.add(control, (state) => ({
      value: String(state.query),
      hidden: this.targets.fitted(state.target) !== ROLLOUT,
    }));
  }

  private share(): HTMLElement {
    const title = "In every layer, the fewest edges that carry this share of its flow";
    const slider = percentSlider("Share of the flow", title, (share) => this.store.set({ share }));
    return this.add(slider, (state) => ({
      value: String(state.share),
      hidden: !this.targets.at(state).explanation.stack(state.part).followed,
    }));
  }
}
