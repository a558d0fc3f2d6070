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

/** What a user or model named, as one line of text: spaces at the ends of a token are seen, those inside stay spaces. */
export function phrase(text: string): string {
  const seen = (token: string): string => token.replace(/^\s+|\s+$/gu, label);
  return text.split(" - ").map(seen).join(" - ").replace(/\s+/gu, " ").replace(HIDDEN, "\ufffd");
}

/** The same, cut to some number of characters (never inside one). */
export function shortLabel(token: string, longest = 16): string {
  const position = /[\u2080-\u2089]*$/u.exec(token)![0];
  return cut(label(token.slice(0, token.length - position.length)), longest) + position;
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
  /** As the result has them. */
  labels: string[];
  /** As a person reads them: bytes as text. */
  texts: string[];
  /** The same, those that occur more than once with their position (from 1). */
  shown: string[];
  special: boolean[];
  group: string[];
  /** For every token its unit, -1 where it is not shown. */
  of: number[];
}

/** Whether one of these tokens is an attention sink, which receives much of the attention whatever its text is. */
export function holdsSink(table: TokenTable, members: readonly number[]): boolean {
  return members.some((token) => table.sink?.[token] === 1);
}

/** The token with which the second text of a pair begins; -1 where there is one text, or where that is not known. */
export function secondText({ segment }: TokenTable): number {
  return segment?.indexOf(1) ?? -1;
}

export type UnitKind = "token" | "word" | "sentence" | "block";

const NO_WORD = -1;
const MOST_BLOCKS = 48;
const SENTENCE_END = /[.!?\u2026\u3002\uff01\uff1f][)"'\u201d\u2019\]]*$|[\n\u010a]$/u;

/** How many tokens there are, those in blocks counted one by one. */
export function countOf({ token, count }: TokenTable): number {
  return count ? count.reduce((sum, tokens) => sum + tokens, 0) : token.length;
}

/** Whether words are known at all. */
export function hasWords(table: TokenTable): boolean {
  return table.word.some((word) => word !== NO_WORD);
}

/** The kinds of units into which tokens can be put together, so that something becomes of them. */
export function kindsOf(table: TokenTable): UnitKind[] {
  const kinds: UnitKind[] = ["token"];
  const patches = table.row?.some((row) => row >= 0);
  if (table.count || patches) return kinds;
  const content = table.token.filter((_, index) => table.special[index] !== 1);
  if (hasWords(table)) kinds.push("word");
  if (new Set(namesOf(table, "sentence").filter((name) => name !== null)).size > 1) kinds.push("sentence");
  if (content.length > MOST_BLOCKS) kinds.push("block");
  return kinds;
}

/** For every token the name of the unit that it belongs to; null where it is one of its own. */
function namesOf(table: TokenTable, kind: UnitKind): (string | null)[] {
  const size = blockSize(table);
  const sentences = new Map<string, number>();
  const counts = new Map<string, number>();
  const second = secondText(table);
  return table.token.map((token, index) => {
    const group = table.group?.[index] ?? "";
    const word = table.word[index] ?? NO_WORD;
    if (kind === "word") return word === NO_WORD ? null : `${group}/${word}`;
    // An attention sink stays apart, as in Python, so that its share is not taken for that of its sentence.
    if (kind === "sentence" && index === second) sentences.set(group, (sentences.get(group) ?? 0) + 1);
    if (kind === "token" || table.special[index] === 1 || (kind === "sentence" && table.sink?.[index] === 1))
      return null;
    if (kind === "block") {
      const unit = counts.get(group) ?? 0;
      counts.set(group, unit + 1);
      return `${group}/${Math.floor(unit / size)}`;
    }
    const sentence = sentences.get(group) ?? 0;
    if (SENTENCE_END.test(table.text?.[index] ?? token)) sentences.set(group, sentence + 1);
    return `${group}/${sentence}`;
  });
}

function blockSize(table: TokenTable): number {
  return 2 ** Math.ceil(Math.log2(Math.max(1, table.token.length / MOST_BLOCKS)));
}

export function unitsOf(table: TokenTable, options: { kind: UnitKind; special: boolean }): Units {
  const units: Units = {
    members: [],
    labels: [],
    texts: [],
    shown: [],
    special: [],
    group: [],
    of: table.token.map(() => -1),
  };
  const names = namesOf(table, options.kind);
  const range = new Map<string, number>();
  table.token.forEach((_, index) => {
    const special = table.special[index] === 1;
    if (special && !options.special) return;
    const name = names[index] ?? `token/${index}`;
    let unit = range.get(name);
    if (unit === undefined) {
      unit = units.members.length;
      range.set(name, unit);
      units.members.push([]);
      units.special.push(special);
      units.group.push(table.group?.[index] ?? "");
    }
    units.members[unit]!.push(index);
    units.of[index] = unit;
  });
  const texts = units.members.map((members) => textsOf(table, members, options.kind, names[members[0]!] !== null));
  units.labels = texts.map(([text]) => text);
  units.texts = texts.map(([, text]) => text);
  units.shown = numbered(units, table);
  return units;
}

/** What a unit is called in data, and for people. */
function textsOf(table: TokenTable, members: number[], kind: UnitKind, joined: boolean): [string, string] {
  const [first, last] = [members[0]!, members[members.length - 1]!];
  const readable = (index: number): string => table.text?.[index] ?? table.token[index]!;
  if (!joined) return [table.token[first]!, readable(first)];
  if (kind === "word") return [table.wordText[first] ?? table.token[first]!, table.wordText[first] ?? readable(first)];
  if (kind === "block") {
    const range = `${table.position[first]! + 1}\u2013${table.position[last]! + 1}`;
    return [range, range];
  }
  const text = running(members.map(readable));
  // Only a token's own space is drawn as a sign.
  return [text, text.replaceAll(" ", "\u00a0")];
}

/** Tokens as running text, as far as their marks say. */
export function running(tokens: readonly string[]): string {
  const marked = tokens.some((token) => /^[ \u2581]/u.test(token));
  const texts = tokens.map((token) => {
    if (marked) return token.replaceAll("\u2581", " ");
    return token.startsWith("##") ? token.slice(2) : /^[.,;:!?)\]%]/u.test(token) ? token : ` ${token}`;
  });
  return texts.join("").replace(/\s+/gu, " ").trim();
}

const SUBSCRIPTS = "\u2080\u2081\u2082\u2083\u2084\u2085\u2086\u2087\u2088\u2089";

function numbered({ texts, members, group }: Units, table: TokenTable): string[] {
  const counts = new Map<string, number>();
  const name = (unit: number): string => `${group[unit]}/${texts[unit]}`;
  for (const unit of texts.keys()) counts.set(name(unit), (counts.get(name(unit)) ?? 0) + 1);
  return texts.map((text, unit) => {
    if (counts.get(name(unit)) === 1) return text;
    const position = table.position[members[unit]![0]!]! + 1;
    return text + [...String(position)].map((digit) => SUBSCRIPTS[Number(digit)]).join("");
  });
}
