/** Colours: perceptually even maps that colour-blind readers can tell apart, as tables of 256 colours. */
import { color } from "d3-color";
import { interpolateLab, piecewise } from "d3-interpolate";
import {
  interpolateCividis,
  interpolateGreys,
  interpolateMagma,
  interpolateRdBu,
  interpolateViridis,
} from "d3-scale-chromatic";
import type { Matrix } from "../model/matrix";
import type { State } from "../model/state";

export interface Palette {
  /** 256 colours as packed RGBA for ImageData, and the same as CSS. */
  table: Uint32Array;
  css: string[];
  /** Values from -limit to limit (diverging) or from 0 to limit. */
  diverging: boolean;
  limit: number;
  root: boolean;
}

type Interpolator = (t: number) => string;

/** Starts from the colour of paper and joins a colour map soon after, growing darker all the way. */
function onPaper(interpolator: Interpolator): Interpolator {
  return (t) => interpolateLab("#fdfbf5", interpolator(t))(Math.min(1, 0.06 + t / 0.22));
}

// Where little is, the colour is near that of the page: paper in the light theme, night in the dark one.
const SEQUENTIAL: Record<State["colours"], { light: Interpolator; dark: Interpolator }> = {
  magma: { light: onPaper((t) => interpolateMagma(0.97 - 0.9 * t)), dark: (t) => interpolateMagma(0.06 + 0.92 * t) },
  viridis: { light: (t) => interpolateViridis(1 - t), dark: interpolateViridis },
  cividis: { light: (t) => interpolateCividis(1 - t), dark: interpolateCividis },
  greys: { light: (t) => interpolateGreys(0.02 + 0.95 * t), dark: (t) => interpolateGreys(0.92 - 0.9 * t) },
};

const DIVERGING: { light: Interpolator; dark: Interpolator } = {
  light: (t) => interpolateRdBu(1 - t),
  dark: piecewise(interpolateLab, ["#8fd0ff", "#2f83c9", "#23222b", "#d0603b", "#ffc59a"]),
};

const cache = new Map<string, { table: Uint32Array; css: string[] }>();

function colours(name: State["colours"], diverging: boolean, dark: boolean): { table: Uint32Array; css: string[] } {
  const key = `${diverging ? "diverging" : name}/${dark}`;
  let found = cache.get(key);
  if (!found) {
    const interpolator = (diverging ? DIVERGING : SEQUENTIAL[name])[dark ? "dark" : "light"];
    const css = Array.from({ length: 256 }, (_, at) => color(interpolator(at / 255))!.formatHex());
    const table = Uint32Array.from(css, (text) => {
      const { r, g, b } = color(text)!.rgb();
      return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
    });
    found = { table, css };
    cache.set(key, found);
  }
  return found;
}

export function palette(state: State, limit: number, dark: boolean): Palette {
  const diverging = state.base !== "";
  return { ...colours(state.colours, diverging, dark), diverging, limit, root: state.scale === "root" };
}

/** The place of a value in the table. */
export function shade(value: number, { diverging, limit, root }: Palette): number {
  if (limit <= 0) return diverging ? 128 : 0;
  let t = value / limit;
  if (root) t = Math.sign(t) * Math.sqrt(Math.abs(t));
  const place = diverging ? (t + 1) * 127.5 : t * 255;
  return place < 0 ? 0 : place > 255 ? 255 : Math.round(place);
}

/** One pixel per cell; transparent where nothing exists. */
export function paint(matrix: Matrix, colours: Palette): ImageData {
  const { rows, columns, values } = matrix;
  const image = new ImageData(Math.max(1, columns), Math.max(1, rows));
  const pixels = new Uint32Array(image.data.buffer);
  const { table, diverging, limit, root } = colours;
  if (root || limit <= 0) {
    for (let at = 0; at < values.length; at++) {
      const value = values[at]!;
      pixels[at] = !Number.isNaN(value) ? table[shade(value, colours)]! : 0;
    }
    return image;
  }
  const [factor, offset] = diverging ? [127.5 / limit, 128] : [255 / limit, 0.5];
  for (let at = 0; at < values.length; at++) {
    const value = values[at]!;
    if (Number.isNaN(value)) continue;
    const place = (value * factor + offset) | 0;
    pixels[at] = table[place < 0 ? 0 : Math.min(place, 255)]!;
  }
  return image;
}

/** Black or white, whichever reads better on a colour. */
export function inkOn(css: string): string {
  const { r, g, b } = color(css)!.rgb();
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#17151f" : "#ffffff";
}
