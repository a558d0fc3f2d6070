/** The second form of the web app: two texts to compare, and the model. */
import { type Control, menu } from "../draw/controls";
import { h } from "../draw/dom";
import { area, type ModelSettings, type Settings } from "./form";
import type { SimilarityRequest } from "./requests";

const EXAMPLE = {
  first: "A man is playing a guitar on stage.",
  second: "Someone performs live music with a guitar.",
};

export class SimilarityForm {
  readonly element: HTMLFormElement;
  readonly submit = h("button", { type: "submit", class: "primary" }, "Compare");
  readonly stop = h("button", { type: "button", class: "cancel", hidden: true }, "Cancel");
  private readonly first = area("First text", EXAMPLE.first);
  private readonly second = area(
    "Second text to compare",
    `${EXAMPLE.second} (several lines: passages, which are ranked)`,
  );
  private readonly models: ModelSettings[];
  private readonly menu: Control;
  private model: string;

  constructor(settings: Settings, submit: () => void) {
    this.models = settings.models.filter(({ embeds }) => embeds);
    this.model = this.models[0]?.name ?? "";
    const names = this.models.map(({ name }) => ({ value: name, label: name }));
    this.menu = menu("Model", names, (name) => this.choose(name));
    for (const field of [this.first, this.second]) field.maxLength = settings.characters;
    this.element = h(
      "form",
      { class: "ask similar", "aria-label": "Compare two texts" },
      h("h2", {}, "Why are two texts similar?"),
      h("div", { class: "entry" }, this.first, this.second, this.submit, this.stop),
      h("div", { class: "options" }, this.menu),
    );
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.fill();
      submit();
    });
    this.choose(this.model);
  }

  /** Whether any model here makes embeddings. */
  get offered(): boolean {
    return this.models.length > 0;
  }

  get request(): SimilarityRequest {
    return { first: this.first.value, second: this.second.value, model: this.model };
  }

  set({ first, second, model }: SimilarityRequest): void {
    this.first.value = first;
    this.second.value = second;
    if (this.models.some(({ name }) => name === model)) this.choose(model);
  }

  /** Two empty boxes stand for the texts that are shown in them. */
  private fill(): void {
    if (this.first.value.trim() !== "" || this.second.value.trim() !== "") return;
    this.first.value = EXAMPLE.first;
    this.second.value = EXAMPLE.second;
  }

  private choose(name: string): void {
    this.model = name;
    this.menu.update({ value: name, hidden: this.models.length < 2 });
  }
}
