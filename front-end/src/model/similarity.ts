/** Why two texts are similar: both texts, the table between them, and how all of it adds up, in any units. No DOM. */
import { type Picture, pictureOf } from "./analysis";
import { decodeBlock } from "./decode";
import type { Matrix } from "./matrix";
import type { Facts, SidePayload, SimilarityPayload } from "./payload";
import { kindsOf, type UnitKind, type Units, unitsOf } from "./tokens";

export const SIDES = ["first", "second"] as const;
export type SideName = (typeof SIDES)[number];

export function otherSide(side: SideName): SideName {
  return side === "first" ? "second" : "first";
}

/** One similarity as Python computed it, token by token. */
export interface Similarity {
  facts: Facts;
  value: number;
  measure: string;
  /** What the rows and columns of the table are: tokens, or words already. */
  unit: string;
  error: number;
  sides: Record<SideName, SidePayload>;
  /** The images, of sides that are images. */
  pictures: Record<SideName, Picture | null>;
  /** `[first, second]`; null where only the shares of tokens are known. */
  table: Float32Array | null;
  constant: number;
  matches: SimilarityPayload["matches"];
}

export async function decodeSimilarity(payload: SimilarityPayload): Promise<Similarity> {
  const { facts, value, measure, unit, error, first, second, table, constant, matches } = payload;
  const rows = first.tokens.token.length;
  return {
    facts,
    value,
    measure,
    unit,
    error,
    sides: { first, second },
    pictures: { first: await pictureOn(first), second: await pictureOn(second) },
    table: table && (await decodeBlock(table)).read(0, rows),
    constant: constant ?? 0,
    matches,
  };
}

async function pictureOn({ image }: SidePayload): Promise<Picture | null> {
  return image ? pictureOf(image) : null;
}

/** The kinds of units that one text or the other can be put into. */
export function unitKinds({ sides, unit }: Similarity): UnitKind[] {
  const kinds = SIDES.flatMap((side) => kindsOf(sides[side].tokens));
  const known = (["token", "word", "sentence"] as const).filter((kind) => kinds.includes(kind));
  return unit === "word" && known.includes("word") ? known.filter((kind) => kind !== "token") : known;
}

/** One text in units: what each does with the other text, with its bias, and together. */
export interface Line {
  units: Units;
  shares: Float64Array;
  /** Zeros without a table. */
  margins: Float64Array;
  /** Whether a unit belongs to the instruction before the text. */
  prompt: boolean[];
  /** Whether a unit continues the word of the one before it. */
  joined: boolean[];
  /** Of an image, the row and column of every unit; null for units that are no patches. */
  patches: ({ row: number; column: number } | null)[] | null;
}

/** A similarity in units. */
export interface Account {
  similarity: Similarity;
  lines: Record<SideName, Line>;
  table: Matrix | null;
}

/** One cell of the table. */
export interface Pair {
  first: number;
  second: number;
  value: number;
}

export function accountOf(similarity: Similarity, options: { kind: UnitKind; special: boolean }): Account {
  const lines = { first: lineOf(similarity.sides.first, options), second: lineOf(similarity.sides.second, options) };
  return { similarity, lines, table: similarity.table && summed(similarity.table, lines) };
}

function lineOf({ tokens, share, margin }: SidePayload, asked: { kind: UnitKind; special: boolean }): Line {
  const isImage = tokens.row !== undefined;
  const options = isImage ? { ...asked, kind: "token" as const } : asked;
  const plain = readable(unitsOf(tokens, options), options.kind);
  const patches = isImage ? plain.members.map(([token]) => patchOf(tokens, token!)) : null;
  const shown = plain.shown.map((text, unit) => (patches?.[unit] ? `patch\u00a0${text}` : text));
  const units = { ...plain, shown };
  const word = (unit: number): number => tokens.word[units.members[unit]?.[0] ?? -1] ?? -1;
  const sums = (values: readonly number[]): Float64Array =>
    Float64Array.from(units.members, (members) => members.reduce((sum, token) => sum + values[token]!, 0));
  return {
    units,
    shares: sums(share),
    margins: margin ? sums(margin) : new Float64Array(units.members.length),
    prompt: units.members.map(([token]) => tokens.prompt?.[token!] === 1),
    joined: units.members.map(
      (_, unit) => options.kind === "token" && word(unit) !== -1 && word(unit) === word(unit - 1),
    ),
    patches,
  };
}

function patchOf({ row, column }: SidePayload["tokens"], token: number): { row: number; column: number } | null {
  const place = { row: row?.[token] ?? -1, column: column?.[token] ?? -1 };
  return place.row < 0 ? null : place;
}

/** Whether one of the two is an image. */
export function hasImage({ lines }: Account): boolean {
  return SIDES.some((side) => lines[side].patches !== null);
}

/** The size of the largest value of a line, patches alone where it is an image: its class token may outshine them all. */
export function largestOf({ patches }: Line, values: ArrayLike<number>): number {
  let most = 0;
  for (let unit = 0; unit < values.length; unit++) {
    if (!patches || patches[unit]) most = Math.max(most, Math.abs(values[unit]!));
  }
  return most;
}

/** Sentences with spaces that are spaces: only in a token it matters that there is one. */
function readable(units: Units, kind: UnitKind): Units {
  if (kind !== "sentence") return units;
  const spaced = (text: string): string => text.replaceAll(" ", "\u00a0");
  return { ...units, texts: units.texts.map(spaced), shown: units.shown.map(spaced) };
}

function summed(cells: Float32Array, { first, second }: Account["lines"]): Matrix {
  const [rows, columns] = [first.units.members.length, second.units.members.length];
  const sums = new Float64Array(rows * columns);
  const width = second.units.of.length;
  first.units.of.forEach((row, token) => {
    if (row < 0) return;
    second.units.of.forEach((column, other) => {
      if (column >= 0) sums[row * columns + column]! += cells[token * width + other]!;
    });
  });
  return { rows, columns, values: Float32Array.from(sums) };
}

/** More are not drawn, whatever share they would be. */
const MOST_PAIRS = 300;

/** The fewest pairs whose sizes are some share (0 to 1) of the sizes of all, largest first; and what share they are. */
export function strongestPairs(table: Matrix, share: number): { pairs: Pair[]; carried: number } {
  const sorted = allPairs(table).sort((one, other) => Math.abs(other.value) - Math.abs(one.value));
  const total = sorted.reduce((sum, { value }) => sum + Math.abs(value), 0);
  const pairs: Pair[] = [];
  let carried = 0;
  for (const pair of sorted) {
    // What rounding leaves of the last share is no reason for another pair.
    if (carried >= share * total * (1 - 1e-9) || pairs.length === MOST_PAIRS) break;
    pairs.push(pair);
    carried += Math.abs(pair.value);
  }
  return { pairs, carried: total > 0 ? carried / total : 0 };
}

function allPairs({ columns, values }: Matrix): Pair[] {
  const pairs: Pair[] = [];
  values.forEach((value, at) => {
    if (value !== 0) pairs.push({ first: Math.floor(at / columns), second: at % columns, value });
  });
  return pairs;
}

/** What a unit of one text does with every unit of the other. */
export function partnersOf({ rows, columns, values }: Matrix, side: SideName, unit: number): Float32Array {
  if (side === "first") return values.slice(unit * columns, (unit + 1) * columns);
  return Float32Array.from({ length: rows }, (_, row) => values[row * columns + unit]!);
}

/** The table with the margins as a last row and column, and the constant where they meet: all of it adds up to the value. */
export function withMargins({ similarity, lines, table }: Account): { matrix: Matrix; queries: Units; keys: Units } {
  const { rows, columns, values } = table!;
  const cells = new Float32Array((rows + 1) * (columns + 1));
  for (let row = 0; row < rows; row++) {
    cells.set(values.subarray(row * columns, (row + 1) * columns), row * (columns + 1));
    cells[row * (columns + 1) + columns] = lines.first.margins[row]!;
  }
  lines.second.margins.forEach((margin, column) => {
    cells[rows * (columns + 1) + column] = margin;
  });
  cells[cells.length - 1] = similarity.constant;
  return {
    matrix: { rows: rows + 1, columns: columns + 1, values: cells },
    queries: withBias(lines.first.units),
    keys: withBias(lines.second.units),
  };
}

export const BIAS = "bias";

function withBias(units: Units): Units {
  return {
    members: [...units.members, []],
    labels: [...units.labels, BIAS],
    texts: [...units.texts, BIAS],
    shown: [...units.shown, BIAS],
    special: [...units.special, true],
    group: [...units.members.map(() => ""), " "],
    of: units.of,
  };
}

/** How everything adds up, in the order of reading: names and values, the last of which is the similarity itself. */
export function sumsOf({ sides, table, constant, value, measure }: Similarity): [string, number][] {
  const total = (values: Iterable<number>): number => [...values].reduce((sum, one) => sum + one, 0);
  if (!table) {
    return [
      ["tokens of the first text", total(sides.first.share)],
      ["the rest", sides.first.bias],
      [measure, value],
    ];
  }
  return [
    ["pairs of tokens", total(table)],
    ["first text with the bias of the second", total(sides.first.margin ?? [])],
    ["second text with the bias of the first", total(sides.second.margin ?? [])],
    ["both biases", constant],
    [measure, value],
  ];
}
