/**
 * Colours: perceptually even maps that colour-blind readers can distinguish, as tables of 256 colours.
 *
 * The house palette is that of the figures: both read it from the Python package's `plots/palette.json`.
 */
import { color } from "d3-color";
import { interpolateLab, interpolateRgb, piecewise } from "d3-interpolate";
import house from "../../../src/normscope/plots/palette.json";
import type { Matrix, Range } from "../model/matrix";
import { fractionOf, type Scale } from "../model/scale";
import type { State } from "../model/state";
import { CIVIDIS, GREYS, MAGMA, VIRIDIS } from "./ramps";

export interface Palette extends Range {
  /** 256 colours as packed RGBA for ImageData, and the same as CSS. */
  table: Uint32Array;
  css: string[];
  /** Values from -limit to limit (diverging) or from 0 to limit; whatever is beyond has the last colour. */
  diverging: boolean;
  scale: Scale;
}

/** Cells that are of no colour: for every row one column. */
export interface Greyed {
  columns: Int32Array;
  css: string;
}

export interface Shades {
  diverging: boolean;
  dark: boolean;
}

/** How far the colours of a map reach, and how values are laid out on them. */
export interface Colouring extends Range {
  scale: Scale;
}

type Interpolator = (t: number) => string;

interface Themed {
  light: Interpolator;
  dark: Interpolator;
}

/** Starts from the colour of paper and joins a colour map soon after, growing darker all the way. */
function onPaper(interpolator: Interpolator): Interpolator {
  return (t) => interpolateLab("#fdfbf5", interpolator(t))(Math.min(1, 0.06 + t / 0.22));
}

/** A colour map from step to step. */
function through(steps: readonly string[]): Interpolator {
  return piecewise(interpolateRgb, [...steps]);
}

const [magma, greys] = [through(MAGMA), through(GREYS)];

// Where little is, the colour is near that of the page: paper in the light theme, night in the dark one.
const SEQUENTIAL: Record<State["colours"], Themed> = {
  normscope: { light: through(house.sequential), dark: through(house.sequential.toReversed()) },
  magma: { light: onPaper((t) => magma(0.97 - 0.9 * t)), dark: (t) => magma(0.06 + 0.92 * t) },
  viridis: { light: through(VIRIDIS.toReversed()), dark: through(VIRIDIS) },
  cividis: { light: through(CIVIDIS.toReversed()), dark: through(CIVIDIS) },
  greys: { light: (t) => greys(0.02 + 0.95 * t), dark: (t) => greys(0.92 - 0.9 * t) },
};

const DIVERGING: Themed = {
  light: through(house.diverging),
  dark: through(house.diverging_at_night),
};

type Table = Pick<Palette, "table" | "css">;

const cache = new Map<string, Table>();

function tableOf(name: State["colours"], { diverging, dark }: Shades): Table {
  const key = `${diverging ? "diverging" : name}/${dark}`;
  let made = cache.get(key);
  if (!made) {
    const interpolator = (diverging ? DIVERGING : SEQUENTIAL[name])[dark ? "dark" : "light"];
    const css = Array.from({ length: 256 }, (_, at) => color(interpolator(at / 255))!.formatHex());
    const table = Uint32Array.from(css, pack);
    made = { table, css };
    cache.set(key, made);
  }
  return made;
}

function pack(css: string): number {
  const { r, g, b } = color(css)!.rgb();
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

export function palette(colours: State["colours"], { scale, ...range }: Colouring, shades: Shades): Palette {
  return { ...tableOf(colours, shades), ...range, diverging: shades.diverging, scale };
}

/** The index of the colour of a value in the table. */
export function shade(value: number, { diverging, limit, scale }: Palette): number {
  if (limit <= 0) return diverging ? 128 : 0;
  if (!diverging) return value <= 0 ? 0 : Math.round(255 * fractionOf(value, limit, scale));
  const fraction = fractionOf(Math.abs(value), limit, scale);
  return Math.round((1 + Math.sign(value) * fraction) * 127.5);
}

/** One pixel per cell; transparent where nothing exists. */
export function paint(matrix: Matrix, colours: Palette, grey: Greyed | null = null): ImageData {
  const { rows, columns, values } = matrix;
  const image = new ImageData(Math.max(1, columns), Math.max(1, rows));
  const pixels = new Uint32Array(image.data.buffer);
  const { table } = colours;
  for (let at = 0; at < values.length; at++) {
    const value = values[at]!;
    if (!Number.isNaN(value)) pixels[at] = table[shade(value, colours)]!;
  }
  if (grey) {
    const packed = pack(grey.css);
    grey.columns.forEach((column, row) => {
      if (column >= 0) pixels[row * columns + column] = packed;
    });
  }
  return image;
}

/** Black or white, whichever reads better on a colour: one of them always has a contrast of 4.5 or more. */
export function inkOn(css: string): string {
  const { r, g, b } = color(css)!.rgb();
  const [red, green, blue] = [r, g, b].map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue! > 0.179 ? "#000000" : "#ffffff";
}
