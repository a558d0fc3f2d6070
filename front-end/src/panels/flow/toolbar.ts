/** What is explained, how much of the flow is drawn, and in which units. */
import { type Choice, menu, popover, segmented } from "../../draw/controls";
import { h } from "../../draw/dom";
import type { Explanation } from "../../model/explanation";
import * as format from "../../model/format";
import type { State } from "../../model/state";
import type { Store } from "../../model/store";
import { kindsOf, phrase } from "../../model/tokens";
import { Bar, UNITS } from "../bar";

/** Every value that is explained: which explanation, and which of its targets. */
export interface Explained {
  explanation: Explanation;
  place: number;
}

export class FlowToolbar extends Bar {
  readonly element: HTMLElement;

  constructor(
    store: Store,
    views: Choice[],
    private readonly explained: Explained[],
  ) {
    super(store, views);
    this.element = h(
      "div",
      { class: "toolbar", role: "group", "aria-label": "What is explained and how it is shown" },
      explained.some(({ explanation }) => explanation.hasEncoder) ? this.stacks() : null,
      this.target(),
      this.share(),
      this.units(),
      h("div", { class: "end" }, this.view(), popover("Display", "display", this.theme())),
    );
  }

  private target(): HTMLElement {
    const texts = new Set(this.explained.map(({ explanation }) => explanation.text));
    const choices = this.explained.map(({ explanation, place }, index) => {
      const { name, value } = explanation.targets[place]!;
      const about = texts.size > 1 ? ` \u00b7 ${explanation.text.slice(0, 40)}` : "";
      return { value: String(index), label: `${phrase(name)}  ${format.signed(value)}${about}` };
    });
    const control = menu("Explain", choices, (value) =>
      this.store.set({ target: Number(value), depth: -1, token: -1 }),
    );
    control.element.classList.add("target");
    this.syncs.push((state) => control.set(String(state.target)));
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
      const { explanation } = this.explained[state.target] ?? this.explained[0]!;
      control.allow(kindsOf(explanation.part(state.part).keys));
    });
    return control.element;
  }
}
