/** What is explained, how much of the flow is drawn, and in which units. */
import { type Choice, menu, popover, segmented } from "../../draw/controls";
import { h } from "../../draw/dom";
import { ROLLOUT, type State } from "../../model/state";
import type { Store } from "../../model/store";
import type { Targets } from "../../model/targets";
import { kindsOf, shortLabel, unitsOf } from "../../model/tokens";
import { Bar, UNITS } from "../bar";

export class FlowToolbar extends Bar {
  readonly element: HTMLElement;

  constructor(
    store: Store,
    views: Choice[],
    private readonly targets: Targets,
    encoder: boolean,
  ) {
    super(store, views);
    this.element = h(
      "div",
      { class: "toolbar", role: "group", "aria-label": "What is explained and how it is shown" },
      encoder ? this.stacks() : null,
      this.target(),
      this.token(),
      this.share(),
      this.units(),
      h("div", { class: "end" }, this.view(), popover("Display", "display", this.theme())),
    );
  }

  private target(): HTMLElement {
    const control = menu("Explain", [], (value) => this.store.set(this.targets.choose(Number(value))));
    control.element.classList.add("target");
    let filled = "";
    this.syncs.push((state) => {
      const choices = this.targets.choices();
      if (filled !== JSON.stringify(choices)) {
        filled = JSON.stringify(choices);
        control.fill(choices);
      }
      control.set(String(this.targets.fitted(state.target)));
    });
    return control.element;
  }

  /** Where a rollout goes to. */
  private token(): HTMLElement | null {
    const { tokens } = this.targets;
    if (!tokens) return null;
    const choices = unitsOf(tokens, { kind: "token", special: true }).shown.map((text, index) => ({
      value: String(index),
      label: shortLabel(text, 24),
    }));
    const control = menu("Token", choices, (value) => this.store.set({ query: Number(value), depth: -1, token: -1 }));
    this.syncs.push((state) => {
      control.element.hidden = this.targets.fitted(state.target) !== ROLLOUT;
      control.set(String(state.query));
    });
    return control.element;
  }

  private share(): HTMLElement {
    const input = h("input", {
      type: "range",
      min: 1,
      max: 100,
      "aria-label": "Share of the flow",
      input: () => this.store.set({ share: Number(input.value) }),
    });
    const shown = h("output", {});
    this.syncs.push((state) => {
      input.value = String(state.share);
      shown.textContent = `${state.share} %`;
    });
    const title = "In every layer the fewest edges that carry this share of what flows through it";
    return h("label", { class: "menu share", title }, h("span", {}, "Share of the flow"), input, shown);
  }

  private units(): HTMLElement {
    const control = segmented("Units", UNITS, (value) => this.store.set({ units: value as State["units"] }));
    this.syncs.push((state) => {
      control.set(state.units);
      const { explanation } = this.targets.at(state);
      control.allow(kindsOf(explanation.part(state.part).keys));
    });
    return control.element;
  }
}
