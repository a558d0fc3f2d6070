/** The small controls everything else is made of: segmented choices, menus, switches. Real form elements, with labels. */
import { h } from "./dom";

let serial = 0;

export interface Choice {
  value: string;
  label: string;
  title?: string;
}

export interface Control {
  element: HTMLElement;
  set(value: string): void;
  enable(enabled: boolean): void;
}

/** A few choices side by side (radio buttons). */
export function segmented(
  legend: string,
  choices: Choice[],
  choose: (value: string) => void,
): Control & { allow(values: readonly string[]): void } {
  const name = `normscope-${++serial}`;
  const inputs = choices.map((choice) =>
    h("input", { type: "radio", name, value: choice.value, change: () => choose(choice.value) }),
  );
  const element = h(
    "fieldset",
    { class: "segmented" },
    h("legend", {}, legend),
    ...choices.map((choice, index) => h("label", { title: choice.title }, inputs[index]!, h("span", {}, choice.label))),
  );
  return {
    element,
    set: (value) => {
      for (const input of inputs) input.checked = input.value === value;
    },
    enable: (enabled) => {
      element.disabled = !enabled;
    },
    allow: (values) => {
      for (const input of inputs) input.parentElement!.hidden = !values.includes(input.value);
      element.hidden = new Set(values).size < 2;
    },
  };
}

/** One of many choices. */
export function menu(
  title: string,
  choices: Choice[],
  choose: (value: string) => void,
): Control & { fill(choices: Choice[]): void } {
  const select = h("select", { change: () => choose(select.value) });
  const element = h("label", { class: "menu" }, h("span", {}, title), select);
  const fill = (entries: Choice[]): void =>
    select.replaceChildren(...entries.map((entry) => h("option", { value: entry.value }, entry.label)));
  fill(choices);
  return {
    element,
    fill,
    set: (value) => {
      select.value = value;
    },
    enable: (enabled) => {
      select.disabled = !enabled;
    },
  };
}

export function toggle(title: string, choose: (on: boolean) => void): Control {
  const input = h("input", { type: "checkbox", role: "switch", change: () => choose(input.checked) });
  return {
    element: h("label", { class: "toggle" }, input, h("i", { "aria-hidden": "true" }), h("span", {}, title)),
    set: (value) => {
      input.checked = value === "true";
    },
    enable: (enabled) => {
      input.disabled = !enabled;
    },
  };
}

/** A button that opens a small panel, closed by Escape or by going elsewhere. */
export function popover(title: string, kind: string, ...children: Node[]): HTMLDetailsElement {
  const element = h(
    "details",
    { class: `popover ${kind}` },
    h("summary", {}, title),
    h("div", { class: "panel" }, ...children),
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
