/** The legend below a map. */
import type { Palette } from "../draw/colour";
import { h, s } from "../draw/dom";
import type { Ink } from "../draw/ink";
import { LEGEND, legendLabel, legendMarks, legendTitle } from "../draw/legend";
import { svgOf } from "../draw/marks";

const WIDTH = LEGEND.width + 2 * LEGEND.side;

export class Legend {
  readonly element: HTMLElement;
  private readonly picture = s("svg", { width: WIDTH, height: LEGEND.height, "aria-hidden": "true" });
  private readonly title = h("span", { class: "title" });

  constructor() {
    this.element = h("figure", { class: "legend", role: "img" }, this.title, this.picture);
  }

  update(palette: Palette, { norm, quantity, ink }: { norm: string; quantity: string; ink: Ink }): void {
    this.title.textContent = legendTitle(palette, quantity);
    this.element.setAttribute("aria-label", legendLabel(palette, norm, quantity));
    const marks = legendMarks(palette, norm, ink.muted);
    this.picture.replaceChildren(...svgOf([{ kind: "group", x: LEGEND.side, marks }]));
  }
}
