/** Whether the credit of the generated text is handed on to the prompt, and the theme. */
import { type Control, popover, segmented } from "../../draw/controls";
import { h } from "../../draw/dom";
import type { Answer, AnswerState } from "../../model/answer";
import type { Store } from "../../model/store";
import { THEMES } from "../basetoolbar";
import { Panel } from "../panel";

const VIEWS = [
  { value: "direct", label: "Direct", title: "What was read from every item when the answer was written" },
  {
    value: "reasoning",
    label: "Through the answer",
    title: "The credit of words that the model wrote itself is handed on to what made it write them",
  },
];

export class AnswerToolbar extends Panel<AnswerState> {
  readonly element: HTMLElement;
  private readonly view: Control;
  private readonly theme: Control;

  constructor(
    store: Store<AnswerState>,
    private readonly answer: Answer,
  ) {
    super();
    this.view = segmented("Shares", VIEWS, (view) => store.set({ view: view as AnswerState["view"] }));
    this.theme = segmented("Theme", THEMES, (theme) => store.set({ theme: theme as AnswerState["theme"] }));
    this.element = h(
      "div",
      { class: "toolbar", role: "group", "aria-label": "What is shown" },
      this.view,
      h("div", { class: "end" }, popover("Display", "display", this.theme)),
    );
  }

  update({ view, theme }: AnswerState): void {
    const names: string[] = this.answer.views.map(({ name }) => name);
    this.view.update({ value: view, choices: VIEWS.filter(({ value }) => names.includes(value)) });
    this.theme.update({ value: theme });
  }
}
