/** The head of the page: whose it is, what was analysed, what the keys do, and the export menu. */
import { popover } from "../draw/controls";
import { bdi, h } from "../draw/dom";
import type { Facts } from "../model/payload";
import type { Shortcut } from "../shortcuts";
import { Panel } from "./panel";

/** A result as the head of the page shows it. */
export interface Heading {
  facts: Facts;
  tokens: number;
  image: boolean;
}

export class Masthead extends Panel<unknown> {
  readonly element: HTMLElement;
  private readonly keys = h("dl");
  private readonly help = popover("Keys", "help", this.keys);

  constructor(
    results: Heading[],
    private readonly shortcuts: () => Shortcut[],
    private readonly exports: Panel<unknown>,
  ) {
    super();
    this.element = h(
      "header",
      { class: "masthead" },
      h("span", { class: "wordmark" }, "normscope"),
      h("div", { class: "texts" }, ...results.map(textOf)),
      this.help,
      this.own(exports),
    );
  }

  /** Show what the keys do, or hide it. */
  toggleKeys(): void {
    this.help.open = !this.help.open;
  }

  update(shown?: unknown): void {
    const entries = this.shortcuts().flatMap(({ keys, description }) => [
      h("dt", {}, h("kbd", {}, keys)),
      h("dd", {}, description),
    ]);
    this.keys.replaceChildren(...entries);
    this.exports.update(shown);
  }
}

function textOf({ facts, tokens, image }: Heading): HTMLElement {
  const parts = [String(facts.source_text ?? ""), String(facts.text ?? "")]
    .filter((text) => text.trim() !== "")
    .map((text) => text.replace(/\s+/gu, " "));
  const shown = parts.flatMap((text, index) => [index > 0 ? " \u2192 " : "", bdi(text)]);
  const children = shown.length > 0 ? shown : [`${image ? "an image, " : ""}${tokens} tokens`];
  return h("p", { class: "text", title: parts.join(" \u2192 ") }, ...children);
}
