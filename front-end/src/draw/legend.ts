/** What the colours mean: a colour bar with its axis. */
import { axisBottom } from "d3-axis";
import { format } from "d3-format";
import { scaleLinear, scalePow } from "d3-scale";
import { select } from "d3-selection";
import { number } from "../model/format";
import type { Palette } from "./colour";
import { h, s } from "./dom";

const WIDTH = 220;

export interface LegendText {
  norm: string;
  title: string;
}

export function scaleOf(palette: Palette, width: number): ReturnType<typeof scaleLinear<number, number>> {
  const limit = palette.limit || 1;
  const domain = palette.diverging ? [-limit, limit] : [0, limit];
  const range = [0, width];
  // A root scale of both signs is symmetric about 0, as the colours are.
  return palette.root ? (scalePow().exponent(0.5).domain(domain).range(range) as never) : scaleLinear(domain, range);
}

export function tickFormat(norm: string, limit: number): (value: number) => string {
  return norm === "none" ? number : format(limit < 0.1 ? ".1~%" : ".0%");
}

export class Legend {
  readonly element: HTMLElement;
  private readonly bar = h("canvas", { width: 256, height: 1, "aria-hidden": "true" });
  private readonly axis = s("svg", { width: WIDTH + 32, height: 20, "aria-hidden": "true" });
  private readonly title = h("span", { class: "title" });

  constructor() {
    this.element = h("figure", { class: "legend", role: "img" }, this.title, h("div", {}, this.bar, this.axis));
  }

  update(palette: Palette, { norm, title }: LegendText): void {
    const context = this.bar.getContext("2d")!;
    palette.css.forEach((colour, at) => {
      context.fillStyle = colour;
      context.fillRect(at, 0, 1, 1);
    });
    this.title.textContent = title;
    const show = tickFormat(norm, palette.limit);
    this.element.setAttribute(
      "aria-label",
      `Colours: ${title}, from ${palette.diverging ? show(-palette.limit) : "0"} to ${show(palette.limit)}`,
    );
    const axis = axisBottom(scaleOf(palette, WIDTH))
      .ticks(4)
      .tickSize(4)
      .tickPadding(3)
      .tickFormat((value) => show(Number(value)));
    this.axis.replaceChildren();
    select(this.axis)
      .append("g")
      .attr("transform", "translate(16,0)")
      .call(axis)
      .call((group) => group.select(".domain").remove());
  }
}
