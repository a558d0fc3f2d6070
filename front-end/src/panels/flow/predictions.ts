/** What the model predicts, with probabilities; where the host can compute it, any label can be explained. */
import { type Choice, type Control, menu } from "../../draw/controls";
import { bdi, h } from "../../draw/dom";
import type { FlowView } from "../../draw/flowview";
import * as format from "../../model/format";
import type { OptionPayload, PredictionPayload } from "../../model/payload";
import type { ExplainRequest } from "../../model/request";
import { label, phrase, shortLabel, unitsOf } from "../../model/tokens";
import { barLine } from "../bar";
import { Panel } from "../panel";

/** Compute another explanation and show it. */
export type RequestExplanation = (request: ExplainRequest) => Promise<void>;

export class PredictionsPanel extends Panel<FlowView> {
  readonly element: HTMLElement;
  private readonly position: Control;
  private readonly list = h("ol", { class: "bars" });
  private readonly of = h("p", { class: "note" });
  private readonly note = h("p", { class: "note", role: "status" });
  private readonly word = h("input", { type: "text", placeholder: "another word or class", "aria-label": "Explain" });
  private readonly contrast = h("input", { type: "text", placeholder: "against (optional)", "aria-label": "Against" });
  private readonly form: HTMLFormElement;
  private view: FlowView | null = null;
  private chosen = -1;
  private shownFor: unknown = null;

  constructor(private readonly request: RequestExplanation | null) {
    super();
    this.position = menu("after", [], (value) => this.choose(Number(value)));
    this.form = h(
      "form",
      { class: "row", hidden: request === null },
      this.word,
      this.contrast,
      h("button", { type: "submit", class: "quiet" }, "Explain"),
    );
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.explain(wordIn(this.word));
    });
    this.element = h(
      "section",
      { class: "card predictions" },
      h("header", {}, h("h2", {}, "What the model predicts"), this.position),
      this.list,
      this.of,
      this.form,
      this.note,
    );
  }

  update(view: FlowView): void {
    this.view = view;
    this.element.hidden = view.predictions.length === 0;
    if (this.element.hidden) return;
    const name = `${view.predictions.length}/${view.explanation.text}/${view.target.position}/${view.target.name}`;
    if (name !== this.shownFor) {
      this.shownFor = name;
      const at = view.predictions.findIndex(({ position }) => position === view.target.position);
      this.chosen = at >= 0 ? at : view.predictions.length - 1;
    }
    this.draw();
  }

  private choose(index: number): void {
    this.chosen = index;
    this.draw();
  }

  private draw(): void {
    const { view } = this;
    const prediction = view?.predictions[this.chosen];
    if (!view || !prediction) return;
    const choices = positionsOf(view);
    this.position.update({ value: String(this.chosen), choices, hidden: choices.length < 2 });
    this.list.replaceChildren(...prediction.options.map((option) => this.entry(view, prediction, option)));
    this.of.textContent = prediction.of ? `Probabilities of ${prediction.of}.` : "";
  }

  private entry(view: FlowView, { position }: PredictionPayload, option: OptionPayload): HTMLElement {
    const name = bdi(phrase(option.name) || label(option.name));
    const can = this.request !== null && option.label !== undefined;
    const title = can ? "Explain this" : undefined;
    const shown = can
      ? h("button", { type: "button", class: "link", title, click: () => void this.explain(option.label!) }, name)
      : name;
    return barLine({
      name: h("span", { class: "key" }, shown),
      size: option.probability,
      colour: "var(--accent)",
      value: format.share(option.probability),
      chosen: position === view.target.position && option.name === view.target.name,
    });
  }

  private async explain(wanted: ExplainRequest["label"]): Promise<void> {
    const position = this.view?.predictions[this.chosen]?.position ?? -1;
    if (!this.request) return;
    this.note.textContent = "Explaining\u2026";
    try {
      const against = wordIn(this.contrast);
      await this.request({ label: wanted, against, at: position < 0 ? null : position });
      this.note.textContent = "";
    } catch (error) {
      this.note.textContent = error instanceof Error ? error.message : String(error);
    }
  }
}

/** The word in a field, with the spaces that belong to it; nothing where there is no word. */
function wordIn({ value }: HTMLInputElement): string | null {
  return value.trim() === "" ? null : value;
}

/** The tokens after which something is predicted. */
function positionsOf({ predictions, explanation }: FlowView): Choice[] {
  const { shown } = unitsOf(explanation.stack("decoder").tokens, { kind: "token", special: true });
  return predictions.map(({ position }, index) => ({
    value: String(index),
    label: shortLabel(shown[position] ?? "", 20),
  }));
}
