/** The small controls everything else is made of: segmented choices, menus, switches. Real form elements, with labels. */
import { h } from "./dom";

let serial = 0;

export interface Choice {
  value: string;
  label: string;
  title?: string;
}

/** What a control shows. */
export interface ControlView {
  value: string;
  /** Where they depend on what is shown. */
  choices?: readonly Choice[];
  disabled?: boolean;
  hidden?: boolean;
  title?: string;
  /** Whether it stands out, because it changes what everything else means. */
  marked?: boolean;
}

export interface Control {
  readonly element: HTMLElement;
  update(view: ControlView): void;
}

/** A few choices in a row (radio buttons), hidden where there is nothing to choose. */
export function segmented(legend: string, choices: readonly Choice[], choose: (value: string) => void): Control {
  const name = `normscope-${++serial}`;
  const radio = ({ value, label, title }: Choice): HTMLElement => {
    const input = h("input", { type: "radio", name, value, change: () => choose(value) });
    return h("label", { title }, input, h("span", {}, label));
  };
  const radios = choices.map(radio);
  const element = h("fieldset", { class: "segmented" }, h("legend", {}, legend), radios);
  return {
    element,
    update: (view) => {
      const offered = view.choices ?? choices;
      choices.forEach(({ value }, index) => {
        radios[index]!.hidden = !offered.some((choice) => choice.value === value);
        radios[index]!.querySelector("input")!.checked = value === view.value;
      });
      element.hidden = view.hidden ?? offered.length < 2;
      element.disabled = view.disabled ?? false;
    },
  };
}

/** One of many choices. */
export function menu(title: string, choices: readonly Choice[], choose: (value: string) => void): Control {
  const select = h("select", { change: () => choose(select.value) });
  const element = h("label", { class: "menu" }, h("span", {}, title), select);
  let options = "";
  const fill = (entries: readonly Choice[]): void => {
    if (JSON.stringify(entries) === options) return;
    options = JSON.stringify(entries);
    select.replaceChildren(...entries.map(({ value, label }) => h("option", { value }, label)));
  };
  fill(choices);
  return {
    element,
    update: (view) => {
      fill(view.choices ?? choices);
      select.value = view.value;
      select.disabled = view.disabled ?? false;
      element.hidden = view.hidden ?? false;
      element.title = view.title ?? "";
      element.classList.toggle("on", view.marked ?? false);
    },
  };
}

/** A switch, whose value is "true" or "false". */
export function toggle(title: string, choose: (on: boolean) => void): Control {
  const input = h("input", { type: "checkbox", role: "switch", change: () => choose(input.checked) });
  const element = h("label", { class: "toggle" }, input, h("i", { "aria-hidden": "true" }), h("span", {}, title));
  return {
    element,
    update: (view) => {
      input.checked = view.value === "true";
      input.disabled = view.disabled ?? false;
      element.hidden = view.hidden ?? false;
    },
  };
}

/** A whole number of percent, from 1 to 100. */
export function percentSlider(name: string, title: string, choose: (percent: number) => void): Control {
  const input = h("input", {
    type: "range",
    min: 1,
    max: 100,
    "aria-label": name,
    input: () => choose(Number(input.value)),
  });
  const output = h("output");
  const element = h("label", { class: "menu share", title }, h("span", {}, name), input, output);
  return {
    element,
    update: (view) => {
      input.value = view.value;
      output.textContent = `${view.value} %`;
      element.hidden = view.hidden ?? false;
    },
  };
}

/** A button that opens a small panel, closed by Escape or when the focus leaves it. */
export function popover(title: string, kind: string, ...children: (Node | Control)[]): HTMLDetailsElement {
  const element = h(
    "details",
    { class: `popover ${kind}` },
    h("summary", {}, title),
    h("div", { class: "panel" }, children),
  );
  element.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && element.open) {
      element.open = false;
      element.querySelector("summary")!.focus();
      event.stopPropagation();
    }
  });
  element.addEventListener("focusout", (event) => {
    const next = event.relatedTarget as Node | null;
    if (next && !element.contains(next)) element.open = false;
  });
  return element;
}
