/** One line of a list of bars: a name, a bar, and its value. */
import { h } from "../draw/dom";

export interface BarView {
  name: Node;
  /** The size of the bar, from 0 to 1; where bars diverge, from -1 to 1. A bar that would be longer is broken. */
  size: number;
  diverging?: boolean;
  colour: string;
  value: string;
  chosen?: boolean;
  title?: string;
  choose?: () => void;
}

export function barLine({ name, size, diverging = false, colour, value, chosen, title, choose }: BarView): HTMLElement {
  const bar = h("i");
  const length = Math.min(1, Math.abs(size)) * (diverging ? 50 : 100);
  bar.classList.toggle("beyond", Math.abs(size) > 1);
  bar.style.width = `${length}%`;
  bar.style.background = colour;
  if (diverging) bar.style.marginInlineStart = `${size < 0 ? 50 - length : 50}%`;
  return h(
    "li",
    { class: chosen ? "chosen" : "", title, click: choose },
    name,
    h("span", { class: "track" }, bar),
    h("span", { class: "value" }, value),
  );
}
