/** Elements without HTML strings: text only ever becomes text nodes, so no token can turn into markup. */

/** Panels and controls stand for their elements. */
type Child = Node | string | { readonly element: Node } | readonly Child[] | null | undefined | false;
type Attributes = Record<string, string | number | boolean | ((event: never) => void) | null | undefined>;

export function h<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[Name] {
  const element = document.createElement(name);
  apply(element, attributes);
  append(element, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function s<Name extends keyof SVGElementTagNameMap>(
  name: Name,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[Name] {
  const element = document.createElementNS(SVG, name);
  apply(element, attributes);
  append(element, children);
  return element;
}

function apply(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value as unknown as EventListener);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

function append(element: Element, children: Child[]): void {
  for (const child of children as (Child | Child[])[]) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(typeof child === "object" && "element" in child ? child.element : (child as Node | string));
  }
}

/** A token's text: isolated, so that right-to-left text stays in its place. */
export function bdi(text: string, attributes: Attributes = {}): HTMLElement {
  return h("bdi", attributes, text);
}

/** A canvas context with one unit per CSS pixel, sharp on any screen. */
export function sized(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  const [deviceWidth, deviceHeight] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== deviceWidth || canvas.height !== deviceHeight) {
    canvas.width = deviceWidth;
    canvas.height = deviceHeight;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Pixels that an explorer has above and below an element of a card, wherever the page is scrolled to. */
export function chromeOf(element: HTMLElement): number {
  const [root, stage, card] = [".root", ".stage", ".card"].map((name) =>
    element.closest(name)?.getBoundingClientRect(),
  );
  if (!root || !stage || !card) return 0;
  const own = element.getBoundingClientRect();
  // A card may stick to the window; its stage does not.
  return stage.top - root.top + (own.top - card.top) + (card.bottom - own.bottom);
}
