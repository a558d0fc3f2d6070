/** What the model predicts, with probabilities; where someone can compute it, any label can be chosen to be explained. */
import { type Control, menu } from "../../draw/controls";
import { bdi, h } from "../../draw/dom";
import type { FlowView } from "../../draw/flowview";
import * as format from "../../model/format";
import type { OptionPayload, PredictionPayload } from "../../model/payload";
import type { ExplainRequest } from "../../model/request";
import { label, phrase, shortLabel, unitsOf } from "../../model/tokens";
import { ElementPanel } from "../panel";

/** Explain something else, and show that. */
export type Ask = (request: ExplainRequest) => Promise<void>;

export class PredictionsPanel extends ElementPanel<FlowView> {
  readonly element: HTMLElement;
  private readonly place: Control & { fill(choices: { value: string; label: string }[]): void };
  private readonly list = h("ol", { class: "bars" });
  private readonly of = h("p", { class: "note" });
  private readonly note = h("p", { class: "note", role: "status" });
  private readonly word = h("input", { type: "text", placeholder: "another word or class", "aria-label": "Explain" });
  private readonly contrast = h("input", { type: "text", placeholder: "against (optional)", "aria-label": "Against" });
  private readonly form: HTMLFormElement;
  private view: FlowView | null = null;
  private chosen = -1;
  private shownFor: unknown = null;

  constructor(private readonly ask: Ask | null) {
    super();
    this.place = menu("after", [], (value) => this.choose(Number(value)));
    this.form = h(
      "form",
      { class: "row", hidden: ask === null },
      this.word,
      this.contrast,
      h("button", { type: "submit", class: "quiet" }, "Explain"),
    );
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.explain(said(this.word));
    });
    this.element = h(
      "section",
      { class: "card predictions" },
      h("header", {}, h("h2", {}, "What the model predicts"), this.place.element),
      this.list,
      this.of,
      this.form,
      this.note,
    );
  }

  update(view: FlowView): void {
    this.view = view;
    this.hide(view.predictions.length === 0);
    if (this.element.hidden) return;
    const name = `${view.predictions.length}/${view.explanation.text}/${view.target.position}/${view.target.name}`;
    if (name !== this.shownFor) {
      this.shownFor = name;
      const at = view.predictions.findIndex(({ position }) => position === view.target.position);
      this.chosen = at >= 0 ? at : view.predictions.length - 1;
      this.fill(view);
    }
    this.draw();
  }

  private fill({ predictions, explanation }: FlowView): void {
    const { shown } = unitsOf(explanation.part("decoder").tokens, { kind: "token", special: true });
    const name = ({ position }: PredictionPayload): string => shortLabel(shown[position] ?? "", 20);
    this.place.fill(predictions.map((one, index) => ({ value: String(index), label: name(one) })));
    this.place.element.hidden = predictions.length < 2;
  }

  private choose(index: number): void {
    this.chosen = index;
    this.draw();
  }

  private draw(): void {
    const { view } = this;
    const prediction = view?.predictions[this.chosen];
    if (!view || !prediction) return;
    this.place.set(String(this.chosen));
    this.list.replaceChildren(...prediction.options.map((option) => this.entry(view, prediction, option)));
    this.of.textContent = prediction.of ? `Probabilities of ${prediction.of}.` : "";
  }

  private entry(view: FlowView, { position }: PredictionPayload, option: OptionPayload): HTMLElement {
    const bar = h("i");
    bar.style.width = `${100 * option.probability}%`;
    bar.style.background = "var(--accent)";
    const name = bdi(phrase(option.name) || label(option.name));
    const can = this.ask !== null && option.label !== undefined;
    const now = position === view.target.position && option.name === view.target.name;
    const title = can ? "Explain this" : undefined;
    const shown = can
      ? h("button", { type: "button", class: "link", title, click: () => void this.explain(option.label!) }, name)
      : name;
    return h(
      "li",
      { class: now ? "chosen" : "" },
      h("span", { class: "key" }, shown),
      h("span", { class: "track" }, bar),
      h("span", { class: "value" }, format.share(option.probability)),
    );
  }

  private async explain(wanted: ExplainRequest["label"]): Promise<void> {
    const position = this.view?.predictions[this.chosen]?.position ?? -1;
    if (!this.ask) return;
    this.note.textContent = "Explaining\u2026";
    try {
      const against = said(this.contrast);
      await this.ask({ label: wanted, against, at: position < 0 ? null : position });
      this.note.textContent = "";
    } catch (error) {
      this.note.textContent = error instanceof Error ? error.message : String(error);
    }
  }
}

/** The word in a field, with the spaces that belong to it; nothing where there is no word. */
function said({ value }: HTMLInputElement): string | null {
  return value.trim() === "" ? null : value;
}
