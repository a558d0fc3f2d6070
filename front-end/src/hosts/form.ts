/** The form of the web app: a text (or a pair, or an image) to analyse, the model and method, and something to compare with. */
import { type Control, menu } from "../draw/controls";
import { h } from "../draw/dom";
import { area } from "./boxform";
import { Picture } from "./picture";
import type { AnalysisInput, AnalysisRequest } from "./requests";

export interface ModelSettings {
  name: string;
  reads: "text" | "image";
  decodes: boolean;
  task: string | null;
  mask: string | null;
  /** Of what it is known how it makes embeddings, so that they can be compared. */
  embeds: ("text" | "image")[];
  /** Whether it puts out a text of which it can be said where it came from. */
  answers: boolean;
}

export interface Settings {
  models: ModelSettings[];
  methods: { name: string; summary: string }[];
  characters: number;
  tokens: number;
}

/** A second input, folded away. */
function compared(title: string, ...fields: Node[]): HTMLDetailsElement {
  return h("details", { class: "compare" }, h("summary", {}, title), h("div", { class: "entry" }, fields));
}

/** Menus of model and method. */
class Picks {
  readonly model: Control;
  readonly method: Control;
  chosen: { model: string; method: string };

  constructor(
    private readonly settings: Settings,
    first: string,
    changed: () => void,
  ) {
    const { models, methods } = settings;
    this.chosen = { model: first, method: methods[0]?.name ?? "" };
    this.model = menu(
      "Model",
      models.map(({ name }) => ({ value: name, label: name })),
      (model) => {
        this.chosen.model = model;
        changed();
      },
    );
    this.method = menu(
      "Method",
      methods.map(({ name }) => ({ value: name, label: name })),
      (method) => {
        this.chosen.method = method;
        changed();
      },
    );
    this.show();
  }

  set(model: string, method: string): void {
    this.chosen = { model, method };
    this.show();
  }

  private show(): void {
    this.model.update({ value: this.chosen.model, hidden: this.settings.models.length < 2 });
    this.method.update({ value: this.chosen.method });
  }
}

export class Form {
  readonly element: HTMLFormElement;
  readonly submit = h("button", { type: "submit", class: "primary" }, "Analyse");
  readonly stop = h("button", { type: "button", class: "cancel", hidden: true }, "Cancel");
  private readonly unfold = h("button", { type: "button", class: "unfold", click: () => this.fold(false) }, "Options");
  private readonly text = area("Text to analyse", "Type a text\u2026");
  private readonly pair = area("Second text of the pair", "A second text of the same input (optional)");
  private readonly reply = area("Decoder text", "Decoder text (default: what the model generates)");
  private readonly second = area("Second text", "The same text");
  private readonly picture = new Picture("Image to analyse", () => this.element.requestSubmit());
  private readonly heads = h("input", { type: "checkbox" });
  private readonly paired: HTMLDetailsElement;
  private readonly comparing: HTMLDetailsElement;
  private readonly summary = h("p", { class: "hint method" });
  private readonly first: Picks;
  private readonly other: Picks;

  constructor(
    private readonly settings: Settings,
    submit: () => void,
    changed: () => void,
  ) {
    const [one, two] = settings.models;
    const update = (): void => {
      this.update();
      changed();
    };
    this.first = new Picks(settings, one?.name ?? "", update);
    this.other = new Picks(settings, (two ?? one)?.name ?? "", update);
    for (const field of [this.text, this.pair, this.reply, this.second]) field.maxLength = settings.characters;
    this.paired = compared("Pair\u2026", this.pair);
    this.comparing = compared(
      "Compare with\u2026",
      this.second,
      h("div", { class: "picks" }, this.other.model, this.other.method),
    );
    this.element = h(
      "form",
      { class: "ask" },
      h("div", { class: "entry" }, this.text, this.picture.element, this.unfold, this.submit, this.stop),
      h("div", { class: "entry reply" }, this.reply),
      h(
        "div",
        { class: "options" },
        this.first.model,
        this.first.method,
        h("label", { class: "check" }, this.heads, "single heads"),
        this.paired,
        this.comparing,
      ),
      this.summary,
    );
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      submit();
    });
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.element.requestSubmit();
      }
    });
    this.update();
  }

  focus(): void {
    this.text.focus();
  }

  /** Leave only the text, once there is something to look at. */
  fold(folded = true): void {
    this.element.classList.toggle("folded", folded);
    this.text.rows = folded ? 1 : 2;
  }

  /** The model that is chosen. */
  get model(): ModelSettings {
    return this.settings.models.find(({ name }) => name === this.first.chosen.model) ?? this.settings.models[0]!;
  }

  get request(): AnalysisRequest {
    const paired = this.paired.open && this.pair.value.trim() !== "";
    const second: AnalysisInput = {
      ...this.other.chosen,
      text: this.second.value.trim() === "" ? this.text.value : this.second.value,
    };
    return {
      ...this.first.chosen,
      text: this.text.value,
      pair: paired ? this.pair.value : "",
      reply: this.model.decodes ? this.reply.value.trim() : "",
      heads: this.heads.checked,
      other: this.comparing.open ? second : null,
    };
  }

  /** Fill in a request; unknown names become the default ones. */
  set({ text, model, method, pair, reply, heads, other }: AnalysisRequest): void {
    this.text.value = text;
    this.pair.value = pair;
    this.paired.open = pair !== "";
    this.reply.value = reply;
    this.heads.checked = heads;
    this.first.set(this.knownModel(model, this.first), this.knownMethod(method));
    this.comparing.open = other !== null;
    if (other) {
      this.second.value = other.text === text ? "" : other.text;
      this.other.set(this.knownModel(other.model, this.other), this.knownMethod(other.method));
    }
    this.update();
  }

  setText(text: string): void {
    this.text.value = text;
  }

  /** The image that is chosen, as base64; null where the model reads text. */
  image(): Promise<string | null> {
    return this.picture.read();
  }

  private knownModel(name: string, picks: Picks): string {
    return this.settings.models.some((model) => model.name === name) ? name : picks.chosen.model;
  }

  private knownMethod(name: string): string {
    const { methods } = this.settings;
    return methods.some((method) => method.name === name) ? name : (methods[0]?.name ?? "");
  }

  private update(): void {
    const { reads, decodes } = this.model;
    const { models, methods } = this.settings;
    this.text.hidden = reads === "image";
    this.picture.element.hidden = reads !== "image";
    this.second.hidden = reads === "image";
    this.paired.hidden = reads === "image" || decodes;
    this.reply.parentElement!.hidden = !decodes;
    const { method } = this.first.chosen;
    const summary = methods.find(({ name }) => name === method)?.summary ?? "";
    this.summary.textContent = `${models.length < 2 ? `${this.model.name} \u00b7 ` : ""}${method}: ${summary}`;
  }
}
