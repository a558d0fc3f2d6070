/** The second form of the web app: two texts to compare (or images, where a model embeds them), and the model. */
import { h } from "../draw/dom";
import { area, BoxForm } from "./boxform";
import type { Settings } from "./form";
import { Picture } from "./picture";
import type { SimilarityRequest } from "./requests";

const FIRST = "A man is playing a guitar on stage.";
const SECOND = "Someone performs live music with a guitar.";

/** A text, or an image in its place. */
class Side {
  readonly element: HTMLElement;
  readonly picture: Picture;
  private readonly instead = h(
    "button",
    { type: "button", class: "link", click: () => this.set(this.field.value) },
    "a text instead",
  );
  private embeds: string[] = [];

  constructor(
    readonly field: HTMLTextAreaElement,
    name: string,
  ) {
    this.picture = new Picture(name, () => this.show());
    this.element = h("div", { class: "side" }, field, h("div", {}, this.picture.element, this.instead));
  }

  get text(): string {
    return this.picture.chosen ? "" : this.field.value;
  }

  set(text: string): void {
    this.field.value = text;
    this.picture.clear();
    this.show();
  }

  /** A text has no place beside an image, or where a model reads none. */
  show(embeds = this.embeds): void {
    this.embeds = embeds;
    this.picture.element.hidden = !embeds.includes("image");
    this.field.hidden = !embeds.includes("text") || this.picture.chosen;
    this.instead.hidden = !embeds.includes("text") || !this.picture.chosen;
  }
}

export class SimilarityForm extends BoxForm {
  private readonly first: Side;
  private readonly second: Side;

  constructor({ models, characters }: Settings, submit: () => void) {
    const fields = [
      area("First text", FIRST),
      area("Second text to compare", `${SECOND} (several lines: passages, which are ranked)`),
    ];
    const [first, second] = fields.map((field, at) => new Side(field, ["First image", "Second image"][at]!));
    super(
      models.filter(({ embeds }) => embeds.length > 0),
      {
        kind: "similar",
        label: "Compare two texts",
        question: models.some(({ embeds }) => embeds.includes("image"))
          ? "Why are two texts, or an image and a text, similar?"
          : "Why are two texts similar?",
        button: "Compare",
      },
      fields.map((field, at) => ({ field, example: [FIRST, SECOND][at]! })),
      [first!.element, second!.element],
      submit,
    );
    for (const field of fields) field.maxLength = characters;
    this.first = first!;
    this.second = second!;
    this.choose(this.model);
  }

  get request(): SimilarityRequest {
    return { first: this.first.text, second: this.second.text, model: this.model };
  }

  /** The images that are chosen. */
  async images(): Promise<{ first_image: string | null; second_image: string | null }> {
    const [first, second] = await Promise.all([this.first, this.second].map(({ picture }) => picture.read()));
    return { first_image: first!, second_image: second! };
  }

  set({ first, second, model }: SimilarityRequest): void {
    this.first.set(first);
    this.second.set(second);
    this.choose(model);
  }

  protected override choose(name: string): void {
    super.choose(name);
    for (const side of [this.first, this.second]) side.show(this.settings?.embeds);
  }
}
