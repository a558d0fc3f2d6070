/** The third form of the web app: a context, a question about it, perhaps its answer, and the model. */
import { type Control, menu } from "../draw/controls";
import { h } from "../draw/dom";
import { area, type ModelSettings, type Settings } from "./form";
import type { AnswerRequest } from "./requests";

const EXAMPLE = {
  context: "Marta lives in Lisbon. She works as a surgeon.\n---\nNoor was born in Oslo. She bought a green canoe.",
  question: "Where does Marta live?",
};

export class AnswerForm {
  readonly element: HTMLFormElement;
  readonly submit = h("button", { type: "submit", class: "primary" }, "Answer");
  readonly stop = h("button", { type: "button", class: "cancel", hidden: true }, "Cancel");
  private readonly context = area("Context", `${EXAMPLE.context} (a line of hyphens is between documents)`);
  private readonly question = area("Question", EXAMPLE.question);
  private readonly given = area("Answer", "The answer, if the model is not to answer itself (optional)");
  private readonly models: ModelSettings[];
  private readonly menu: Control;
  private model: string;

  constructor(settings: Settings, submit: () => void) {
    this.models = settings.models.filter(({ answers }) => answers);
    this.model = this.models[0]?.name ?? "";
    const names = this.models.map(({ name }) => ({ value: name, label: name }));
    this.menu = menu("Model", names, (name) => this.choose(name));
    for (const field of [this.context, this.question, this.given]) field.maxLength = settings.characters;
    this.context.rows = 4;
    const entry = h("div", { class: "entry" }, this.context, this.question, this.given, this.submit, this.stop);
    this.element = h(
      "form",
      { class: "ask answering", "aria-label": "Ask a question about a context" },
      h("h2", {}, "Where does an answer come from?"),
      entry,
      h("div", { class: "options" }, this.menu),
    );
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.fill();
      submit();
    });
    this.choose(this.model);
  }

  /** Whether any model here answers. */
  get offered(): boolean {
    return this.models.length > 0;
  }

  get request(): AnswerRequest {
    return {
      context: this.context.value,
      question: this.question.value,
      given: this.given.value.trim(),
      model: this.model,
    };
  }

  set({ context, question, given, model }: AnswerRequest): void {
    this.context.value = context;
    this.question.value = question;
    this.given.value = given;
    if (this.models.some(({ name }) => name === model)) this.choose(model);
  }

  /** Empty boxes stand for the texts that are shown in them. */
  private fill(): void {
    if (this.context.value.trim() !== "" || this.question.value.trim() !== "") return;
    this.context.value = EXAMPLE.context;
    this.question.value = EXAMPLE.question;
  }

  private choose(name: string): void {
    this.model = name;
    this.menu.update({ value: name, hidden: this.models.length < 2 });
  }
}
