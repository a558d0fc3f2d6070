/** The root element of the explorer in a document: a shadow root, so that neither style sheet affects the other. */
import { h } from "../draw/dom";
import style from "../style.css";

export function shadow(host: HTMLElement): HTMLElement {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(style);
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  root.adoptedStyleSheets = [sheet];
  const inner = h("div", { class: "root" });
  root.replaceChildren(inner);
  return inner;
}
