/**
 * Two texts with ribbons between their tokens: where everything is, and the marks of it. The width of a ribbon is the size
 * of its cell, and at every token the ribbons lie side by side. Owns no state and handles no events.
 */
import * as format from "../model/format";
import { type Account, type Line, largestOf, type Pair, SIDES, type SideName } from "../model/similarity";
import { isolated, label, shortLabel } from "../model/tokens";
import { inkOn, type Palette } from "./colour";
import { signColour, signs, tint } from "./flowview";
import type { Ink } from "./ink";
import { type Box, type Mark, textWidth } from "./marks";
import { picture } from "./picture";

/** A unit of a text, in its place. */
export type Chip = Box;

export interface RibbonLayout {
  chips: Record<SideName, Chip[]>;
  /** The font size. */
  size: number;
  width: number;
  height: number;
  /** Pixels of a ribbon's width for a cell of size 1. */
  scale: number;
}

/** Font sizes to try: the largest at which each text fits on one line, else the smallest. In a small room none is large. */
const SIZES = [26, 22, 18, 16, 14.5];
const ROOM_PER_SIZE = 45;
const PADDING = 6;
const GAP = 4;
/** Between parts of one word. */
const SEAM = 1;
const LINE_GAP = 7;
const LONGEST = 40;
/** Of the space between the texts. */
const DEPTH = { least: 110, most: 260, share: 0.2 };
const WIDEST = 30;
const THINNEST = 0.8;

export function chipText(text: string): string {
  return shortLabel(text, LONGEST);
}

/** How wide a text is in a font of some size. */
export type Ruler = (text: string, size: number) => number;

const onScreen: Ruler = (text, size) => textWidth(isolated(text), { size });

/** An image is no larger, and patches no smaller than a finger or a pointer can tell apart. */
const LARGEST_IMAGE = 440;

/** Where the units of both texts are, and how wide ribbons between the given pairs may be. */
export function ribbonLayout(
  { lines }: Account,
  pairs: readonly Pair[],
  width: number,
  ruler: Ruler = onScreen,
): RibbonLayout {
  const widths = ({ units }: Line, size: number): number[] =>
    units.texts.map((text) => Math.ceil(ruler(chipText(text), size)) + 2 * PADDING);
  const fits = (size: number): boolean =>
    SIDES.every((side) => lines[side].patches !== null || lengthOf(lines[side], widths(lines[side], size)) <= width);
  const size = SIZES.find((one) => one * ROOM_PER_SIZE <= width && fits(one)) ?? SIZES.at(-1)!;
  const room = { height: Math.round(size * 1.3) + 6, width };
  const first = placed(lines.first, widths(lines.first, size), { ...room, top: 0 });
  const isImage = SIDES.some((side) => lines[side].patches !== null);
  const depth = isImage ? DEPTH.least : Math.min(DEPTH.most, Math.max(DEPTH.least, DEPTH.share * width));
  const second = placed(lines.second, widths(lines.second, size), { ...room, top: bottomOf(first) + depth });
  const chips = { first, second };
  return { chips, size, width, height: bottomOf(second), scale: scaleOf(chips, pairs) };
}

function lengthOf(line: Line, widths: readonly number[]): number {
  return widths.reduce((sum, width, unit) => sum + width + gapBefore(line, unit), 0);
}

function gapBefore({ joined }: Line, unit: number): number {
  return unit === 0 ? 0 : joined[unit] ? SEAM : GAP;
}

/** Units one after the other, in lines; a text of one line is centred. */
function placed(
  line: Line,
  widths: readonly number[],
  { height, width, top }: { height: number; width: number; top: number },
): Chip[] {
  if (line.patches) return patched(line.patches, widths, { height, width, top });
  const chips: Chip[] = [];
  let [x, y] = [0, top];
  for (const [unit, own] of widths.entries()) {
    const fitted = Math.min(own, width);
    x += x > 0 ? gapBefore(line, unit) : 0;
    if (x > 0 && x + fitted > width) {
      x = 0;
      y += height + LINE_GAP;
    }
    chips.push({ x, y, width: fitted, height });
    x += fitted;
  }
  if (y > top) return chips;
  const shift = Math.floor((width - x) / 2);
  return chips.map((chip) => ({ ...chip, x: chip.x + shift }));
}

/** An image: its special tokens in a line, and below them the patches, as they lie in it. */
function patched(
  patches: NonNullable<Line["patches"]>,
  widths: readonly number[],
  { height, width, top }: { height: number; width: number; top: number },
): Chip[] {
  const rows = 1 + Math.max(...patches.map((patch) => patch?.row ?? 0));
  const columns = 1 + Math.max(...patches.map((patch) => patch?.column ?? 0));
  const side = Math.min(width, LARGEST_IMAGE) / Math.max(rows, columns);
  const left = (width - side * columns) / 2;
  const below = top + (patches.includes(null) ? height + LINE_GAP : 0);
  let x = left;
  return patches.map((patch, unit): Chip => {
    if (patch) return { x: left + patch.column * side, y: below + patch.row * side, width: side, height: side };
    const chip = { x, y: top, width: widths[unit]!, height };
    x += chip.width + GAP;
    return chip;
  });
}

/** Where the image of a side is: around its patches; null for a text. */
export function imageBox({ chips }: RibbonLayout, side: SideName, { patches }: Line): Box | null {
  const own = chips[side].filter((_, unit) => patches?.[unit]);
  const [first, last] = [own[0], own.at(-1)];
  if (!first || !last) return null;
  return { x: first.x, y: first.y, width: last.x + last.width - first.x, height: last.y + last.height - first.y };
}

function bottomOf(chips: readonly Chip[]): number {
  const last = chips.at(-1);
  return last ? last.y + last.height : 0;
}

function scaleOf(chips: RibbonLayout["chips"], pairs: readonly Pair[]): number {
  const sums = { first: new Map<number, number>(), second: new Map<number, number>() };
  let scale = WIDEST / Math.max(...pairs.map(({ value }) => Math.abs(value)), 1e-30);
  for (const pair of pairs) {
    for (const side of SIDES) sums[side].set(pair[side], (sums[side].get(pair[side]) ?? 0) + Math.abs(pair.value));
  }
  for (const side of SIDES) {
    for (const [unit, sum] of sums[side]) scale = Math.min(scale, chips[side][unit]!.width / sum);
  }
  return scale;
}

/** A ribbon's ends: where it begins below a unit of the first text and above one of the second. */
export interface Ribbon extends Pair {
  width: number;
  from: number;
  to: number;
}

/** The ribbons of some pairs, at every unit side by side in the order of their other ends. */
export function ribbonsOf(at: RibbonLayout, pairs: readonly Pair[]): Ribbon[] {
  const ribbons = pairs.map((pair) => ({
    ...pair,
    width: Math.max(THINNEST, at.scale * Math.abs(pair.value)),
    from: 0,
    to: 0,
  }));
  spread(at, ribbons, "first", "from");
  spread(at, ribbons, "second", "to");
  return ribbons;
}

function spread(at: RibbonLayout, ribbons: Ribbon[], side: SideName, end: "from" | "to"): void {
  const other = side === "first" ? "second" : "first";
  const middle = ({ x, width }: Chip): number => x + width / 2;
  for (const unit of new Set(ribbons.map((ribbon) => ribbon[side]))) {
    const own = ribbons.filter((ribbon) => ribbon[side] === unit);
    own.sort((a, b) => middle(at.chips[other][a[other]]!) - middle(at.chips[other][b[other]]!));
    const total = own.reduce((sum, { width }) => sum + width, 0);
    let x = middle(at.chips[side][unit]!) - total / 2;
    for (const ribbon of own) {
      ribbon[end] = x + ribbon.width / 2;
      x += ribbon.width;
    }
  }
}

export interface RibbonStyle {
  dark: boolean;
  /** What stands out; null where nothing does. */
  focus: ((pair: Pair) => boolean) | null;
}

const OPACITY = { usual: 0.5, focus: 0.8, rest: 0.07 };

/** The ribbons as marks: the smallest first, so that none is hidden. */
export function ribbonMarks(at: RibbonLayout, account: Account, pairs: readonly Pair[], style: RibbonStyle): Mark[] {
  return ribbonsOf(at, pairs)
    .toReversed()
    .map((ribbon): Mark => {
      const { first, second, value } = ribbon;
      const opacity = style.focus === null ? OPACITY.usual : style.focus(ribbon) ? OPACITY.focus : OPACITY.rest;
      return {
        kind: "path",
        d: bandOf(ribbon, edges(at, ribbon)),
        fill: signColour(value, style.dark),
        opacity,
        class: "band",
        data: { first, second },
        title: pairTitle(account, ribbon),
      };
    });
}

/** "guitar – music: +0.037" */
export function pairTitle({ lines }: Account, { first, second, value }: Pair): string {
  const name = (side: SideName, unit: number): string => shortLabel(lines[side].units.shown[unit] ?? "", LONGEST);
  return `${isolated(name("first", first))} \u2013 ${isolated(name("second", second))}: ${format.signed(value)}`;
}

function edges(at: RibbonLayout, { first, second }: Pair): [number, number] {
  const upper = at.chips.first[first]!;
  return [upper.y + upper.height, at.chips.second[second]!.y];
}

/** An upright band of constant width between two places. */
function bandOf({ from, to, width }: Ribbon, [top, bottom]: [number, number]): string {
  const half = width / 2;
  const middle = (top + bottom) / 2;
  const curve = (x: number, end: number, y: number): string => `C${x},${middle} ${end},${middle} ${end},${y}`;
  const down = `M${from - half},${top}${curve(from - half, to - half, bottom)}`;
  const up = `L${to + half},${bottom}${curve(to + half, from + half, top)}`;
  return `${down}${up}Z`;
}

/** The images of sides that are images, as marks. */
export function imageMarks(at: RibbonLayout, { lines, similarity }: Account): Mark[] {
  return SIDES.flatMap((side): Mark[] => {
    const [box, shown] = [imageBox(at, side, lines[side]), similarity.pictures[side]];
    return box && shown ? [{ kind: "bitmap", ...box, bitmap: picture(shown), smooth: true }] : [];
  });
}

/** How much of an image its patches hide. */
const COVER = 0.62;

/** The units of both texts as marks, tinted by what each does: for figures (on the page they are buttons). */
export function chipMarks(at: RibbonLayout, { lines }: Account, colours: Palette, ink: Ink, dark: boolean): Mark[] {
  return SIDES.flatMap((side) =>
    at.chips[side].flatMap((chip, unit): Mark[] => {
      const { units, shares, patches } = lines[side];
      const own = patches ? signs(largestOf(lines[side], shares), dark) : colours;
      const fill = tint(shares[unit]!, own);
      if (patches?.[unit]) return [{ kind: "rect", ...chip, fill, opacity: COVER }];
      const text = isolated(chipText(label(units.texts[unit]!)));
      const middle = { x: chip.x + chip.width / 2, y: chip.y + chip.height / 2 };
      return [
        { kind: "rect", ...chip, radius: 5, fill, stroke: ink.line },
        {
          kind: "text",
          ...middle,
          text,
          size: at.size,
          fill: inkOn(fill),
          anchor: "middle",
          baseline: "middle",
        },
      ];
    }),
  );
}
