/** What the colours mean: a colour bar with its axis, and an arrow where values go beyond it. */
import { format } from "d3-format";
import { scaleLinear, scaleLog, scalePow } from "d3-scale";
import { number } from "../model/format";
import { placeOf, type Scale } from "../model/scale";
import type { Palette } from "./colour";
import { h, s } from "./dom";

const WIDTH = 220;
const ROOM_OF_A_TICK = 24;
const WIDTH_OF_A_DIGIT = 5.8;

export interface LegendText {
  norm: string;
  title: string;
}

/** How values are laid out, where that is not by value or its root. */
const SCALES: Partial<Record<Scale["kind"], string>> = { log: "logarithmic", quantile: "by rank" };

/** Whole percents, or, below 10 %, with the digits that ticks up to a limit need to differ. */
export function tickFormat(norm: string, limit: number): (value: number) => string {
  if (norm === "none") return number;
  if (limit >= 0.1 || limit <= 0) return format(".0%");
  return format(`.${Math.max(1, 1 - Math.floor(Math.log10(100 * limit)))}~%`);
}

/** Whether the last colour also stands for values that are larger still. */
export function goesBeyond({ most, limit }: Palette): boolean {
  return most > limit * (1 + 1e-6);
}

export interface Tick {
  x: number;
  text: string;
}

/** Ticks along a colour bar of some width, as many as have room. */
export function ticksOf(palette: Palette, width: number, norm: string): Tick[] {
  const limit = palette.limit || 1;
  const show = tickFormat(norm, palette.limit);
  const x = (value: number): number => {
    const place = Math.sign(value) * placeOf(Math.abs(value), limit, palette.scale);
    return palette.diverging ? ((1 + place) * width) / 2 : place * width;
  };
  const tickAt = (value: number): Tick => {
    const below = palette.scale.kind === "log" && value === palette.scale.low ? "\u2264\u2009" : "";
    return { x: x(value), text: below + show(value) };
  };
  const ticks: Tick[] = [];
  const apart = (one: Tick, other: Tick): boolean => Math.abs(other.x - one.x) >= roomOf(other.text, one.text);
  for (const size of sizesFor(palette.scale, limit)) {
    const [over, under] = [tickAt(size), tickAt(-size)];
    // Both sides of 0 have the same ticks.
    const sides = palette.diverging && apart(over, under) ? [over, under] : [over];
    if (sides.every((tick) => ticks.every((other) => apart(tick, other)))) ticks.push(...sides);
  }
  return ticks;
}

function roomOf(one: string, other: string): number {
  return Math.max(ROOM_OF_A_TICK, (WIDTH_OF_A_DIGIT * (one.length + other.length)) / 2 + 6);
}

/** The sizes that ticks would be at, those that must be there first. */
function sizesFor(scale: Scale, limit: number): number[] {
  switch (scale.kind) {
    case "linear":
      return scaleLinear([0, limit], [0, 1]).ticks(4);
    case "root":
      return scalePow([0, limit], [0, 1]).exponent(0.5).ticks(4);
    case "log": {
      const decades = scaleLog([scale.low, limit], [0, 1]).ticks(4).toReversed();
      return [scale.low, limit, ...decades];
    }
    default:
      return [0, 1, 0.5, 0.25, 0.75].map((part) => scale.knots[Math.round(part * (scale.knots.length - 1))]!);
  }
}

/** The axis below a colour bar. */
export function axisOf(
  palette: Palette,
  width: number,
  norm: string,
  { y, colour }: { y: number; colour: string },
): SVGElement {
  const ticks = ticksOf(palette, width, norm).flatMap(({ x, text }) => [
    s("line", { x1: x, x2: x, y1: y, y2: y + 4, stroke: colour }),
    s("text", { x, y: y + 14, fill: colour, "font-size": 10, "text-anchor": "middle" }, text),
  ]);
  return s("g", { class: "axis" }, ...ticks);
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
    const scale = SCALES[palette.scale.kind];
    this.title.textContent = scale ? `${title}, ${scale}` : title;
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
    this.axis.replaceChildren(
      s("g", { transform: "translate(16,0)" }, axisOf(palette, WIDTH, norm, { y: 0, colour: "currentColor" })),
    );
  }
}
