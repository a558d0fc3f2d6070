/** What the colours mean: a colour bar with its axis, and an arrow where values go beyond it. */
import { type Axis, axisBottom } from "d3-axis";
import { format } from "d3-format";
import { scaleLinear, scalePow } from "d3-scale";
import { select } from "d3-selection";
import { number } from "../model/format";
import type { Palette } from "./colour";
import { h, s } from "./dom";

const WIDTH = 220;
const ROOM_OF_A_TICK = 32;

export interface LegendText {
  norm: string;
  title: string;
}

export function tickFormat(norm: string, limit: number): (value: number) => string {
  return norm === "none" ? number : format(limit < 0.1 ? ".1~%" : ".0%");
}

/** Whether the last colour also stands for values that are larger still. */
export function goesBeyond({ most, limit }: Palette): boolean {
  return most > limit * (1 + 1e-6);
}

/** The axis below a colour bar of some width, with as many ticks as have room. */
export function axisOf(palette: Palette, width: number, norm: string): Axis<number> {
  const limit = palette.limit || 1;
  const domain = palette.diverging ? [-limit, limit] : [0, limit];
  // A root scale of both signs is symmetric about 0, as the colours are.
  const scale = palette.root ? scalePow(domain, [0, width]).exponent(0.5) : scaleLinear(domain, [0, width]);
  const ticks: number[] = [];
  // From 0 outwards, so that 0 always has its tick.
  for (const tick of scale.ticks(4).sort((a, b) => Math.abs(a) - Math.abs(b))) {
    if (ticks.every((other) => Math.abs(scale(other) - scale(tick)) >= ROOM_OF_A_TICK)) ticks.push(tick);
  }
  const show = tickFormat(norm, palette.limit);
  return axisBottom<number>(scale).tickValues(ticks).tickSize(4).tickFormat(show);
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
    const beyond = goesBeyond(palette);
    this.element.classList.toggle("beyond", beyond);
    this.element.classList.toggle("both", palette.diverging);
    this.element.style.setProperty("--first", palette.css[0]!);
    this.element.style.setProperty("--last", palette.css[255]!);
    const show = tickFormat(norm, palette.limit);
    const ends = [palette.diverging ? show(-palette.limit) : "0", show(palette.limit)];
    this.element.setAttribute(
      "aria-label",
      `Colours: ${title}, from ${ends.join(" to ")}${beyond ? " and beyond" : ""}`,
    );
    this.axis.replaceChildren();
    select(this.axis)
      .append("g")
      .attr("transform", "translate(16,0)")
      .call(axisOf(palette, WIDTH, norm).tickPadding(3))
      .call((group) => group.select(".domain").remove());
  }
}
