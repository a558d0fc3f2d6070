/** What the smaller forms of the web app share: a question, boxes with an example in them, a model, and a button. */
import { type Control, menu } from "../draw/controls";
import { h } from "../draw/dom";
import type { ModelSettings } from "./form";

/** A box, and the text that stands in it until something is typed. */
export interface Box {
  field: HTMLTextAreaElement;
  example: string;
}

export function area(name: string, placeholder: string): HTMLTextAreaElement {
  return h("textarea", { rows: 2, placeholder, "aria-label": name });
}

export interface Wording {
  kind: string;
  label: string;
  question: string;
  button: string;
}

export abstract class BoxForm {
  readonly element: HTMLFormElement;
  readonly submit: HTMLButtonElement;
  readonly stop = h("button", { type: "button", class: "cancel", hidden: true }, "Cancel");
  protected model: string;
  private readonly menu: Control;

  constructor(
    /** The models that can do it. */
    private readonly models: ModelSettings[],
    { kind, label, question, button }: Wording,
    private readonly boxes: Box[],
    entries: HTMLElement[],
    submit: () => void,
  ) {
    this.model = models[0]?.name ?? "";
    this.submit = h("button", { type: "submit", class: "primary" }, button);
    const names = models.map(({ name }) => ({ value: name, label: name }));
    this.menu = menu("Model", names, (name) => this.choose(name));
    this.element = h(
      "form",
      { class: `ask ${kind}`, "aria-label": label },
      h("h2", {}, question),
      h("div", { class: "entry" }, ...entries, this.submit, this.stop),
      h("div", { class: "options" }, this.menu),
    );
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.fill();
      submit();
    });
    this.menu.update({ value: this.model, hidden: models.length < 2 });
  }

  /** Whether any model here can do it. */
  get offered(): boolean {
    return this.models.length > 0;
  }

  protected get settings(): ModelSettings | undefined {
    return this.models.find(({ name }) => name === this.model);
  }

  /** Choose a model, unless it is not known here. */
  protected choose(name: string): void {
    if (this.models.some((model) => model.name === name)) this.model = name;
    this.menu.update({ value: this.model, hidden: this.models.length < 2 });
  }

  /** Empty boxes stand for the texts that are shown in them. */
  protected fill(): void {
    if (this.boxes.some(({ field }) => field.hidden || field.value.trim() !== "")) return;
    for (const { field, example } of this.boxes) field.value = example;
  }
}
