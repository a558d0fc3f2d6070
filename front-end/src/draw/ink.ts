/** The colours of lines and letters, as the style of an element has them. */
import type { Ink } from "./paint";

export function inkOf(element: Element): Ink {
  const style = getComputedStyle(element);
  const of = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    text: of("ink"),
    muted: of("muted"),
    line: of("line"),
    accent: of("accent"),
    panel: of("panel"),
    hatch: of("void"),
  };
}
