/** The colours of lines and letters, as the style of an element has them. */
export interface Ink {
  text: string;
  muted: string;
  faint: string;
  line: string;
  accent: string;
  panel: string;
  /** Where a map has no value. */
  hatch: string;
}

export function inkOf(element: Element): Ink {
  const style = getComputedStyle(element);
  const of = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    text: of("ink"),
    muted: of("muted"),
    faint: of("faint"),
    line: of("line"),
    accent: of("accent"),
    panel: of("panel"),
    hatch: of("void"),
  };
}
