/** How tokens are written where a person reads them, and how tokens become units: subwords or words, special or not. */
import type { TokenTable } from "./payload";

const SPACE = "\u2423";
const VISIBLE: Record<string, string> = {
  "\u0120": SPACE,
  "\u2581": SPACE,
  "\u010a": "\u21b5",
  " ": SPACE,
  "\n": "\u21b5",
  "\r": "\u21b5",
  "\t": "\u21e5",
};
// Control characters and those that change the direction of what follows.
const HIDDEN = /[\p{Cc}\u061c\u200b\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]/gu;

/** A token as one line of text: spaces visible, nothing that breaks a line or turns its direction. */
export function label(token: string): string {
  const visible = token.replace(/[\u0120\u2581\u010a \n\r\t]/gu, (character) => VISIBLE[character] ?? character);
  return visible.replace(HIDDEN, "\ufffd") || SPACE;
}

/** What a user or model named, as one line of text: spaces stay spaces. */
export function phrase(text: string): string {
  return text.replace(/\s+/gu, " ").replace(HIDDEN, "\ufffd").trim();
}

/** The same, cut to some number of characters (never inside one). */
export function shortLabel(token: string, longest = 16): string {
  return cut(label(token), longest);
}

/** A text cut to some number of characters. */
export function cut(text: string, longest: number): string {
  const characters = [...text];
  return characters.length > longest ? `${characters.slice(0, longest - 1).join("")}\u2026` : text;
}

/** Wraps a label so that its direction does not leak into its surroundings (for canvas and SVG; HTML has <bdi>). */
export function isolated(text: string): string {
  return `\u2068${text}\u2069`;
}

/** Rows or columns of a view: each is one or several tokens. */
export interface Units {
  members: number[][];
  labels: string[];
  special: boolean[];
  group: string[];
  /** For every token its unit, -1 where it is not shown. */
  of: number[];
}

const NO_WORD = -1;

/** Whether words are known at all. */
export function hasWords(table: TokenTable): boolean {
  return table.word.some((word) => word !== NO_WORD);
}

export function unitsOf(table: TokenTable, options: { words: boolean; special: boolean }): Units {
  const units: Units = { members: [], labels: [], special: [], group: [], of: table.token.map(() => -1) };
  const places = new Map<string, number>();
  table.token.forEach((token, index) => {
    const special = table.special[index] === 1;
    if (special && !options.special) return;
    const word = table.word[index] ?? NO_WORD;
    const group = table.group?.[index] ?? "";
    const name = options.words && word !== NO_WORD ? `${group}/${word}` : `token/${index}`;
    let place = places.get(name);
    if (place === undefined) {
      place = units.members.length;
      places.set(name, place);
      units.members.push([]);
      units.labels.push(options.words && word !== NO_WORD ? (table.wordText[index] ?? token) : token);
      units.special.push(special);
      units.group.push(group);
    }
    units.members[place]!.push(index);
    units.of[index] = place;
  });
  return units;
}
