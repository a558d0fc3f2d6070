/** The head of the page: whose it is, what was analysed, what the keys do, and the export menu. */
import { popover } from "../draw/controls";
import { bdi, h } from "../draw/dom";
import type { Analysis } from "../model/analysis";
import type { State } from "../model/state";
import type { Shortcut } from "../shortcuts";
import { ElementPanel, type Panel } from "./panel";

export class Masthead extends ElementPanel<State> {
  readonly element: HTMLElement;

  constructor(
    analyses: Analysis[],
    shortcuts: Shortcut[],
    private readonly exports: Panel<State>,
  ) {
    super();
    const keys = shortcuts.flatMap(({ keys, does }) => [h("dt", {}, h("kbd", {}, keys)), h("dd", {}, does)]);
    this.element = h(
      "header",
      { class: "masthead" },
      h("span", { class: "wordmark" }, "normscope"),
      h("div", { class: "texts" }, ...analyses.map(textOf)),
      popover("Keys", "help", h("dl", {}, ...keys)),
    );
    exports.mount(this.element);
  }

  update(state: State): void {
    this.exports.update(state);
  }

  override dispose(): void {
    this.exports.dispose();
    super.dispose();
  }
}

function textOf(analysis: Analysis): HTMLElement {
  const parts = [String(analysis.facts.source_text ?? ""), analysis.text]
    .filter((text) => text.trim() !== "")
    .map((text) => text.replace(/\s+/gu, " "));
  const shown = parts.flatMap((text, index) => [index > 0 ? " \u2192 " : "", bdi(text)]);
  const children = shown.length > 0 ? shown : [`${analysis.keys.token.length} tokens`];
  return h("p", { class: "text", title: parts.join(" \u2192 ") }, ...children);
}
