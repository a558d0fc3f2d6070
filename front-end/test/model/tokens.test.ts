import { describe, expect, it } from "vitest";
import type { TokenTable } from "../../src/model/payload";
import { hasWords, holdsSink, kindsOf, label, phrase, secondText, shortLabel, unitsOf } from "../../src/model/tokens";

const table: TokenTable = {
  position: [0, 1, 2, 3, 4],
  token: ["[CLS]", "un", "##told", "joy", "[SEP]"],
  special: [1, 0, 0, 0, 1],
  word: [-1, 0, 0, 1, -1],
  wordText: ["[CLS]", "untold", "untold", "joy", "[SEP]"],
};

describe("labels", () => {
  it("show spaces and line breaks", () => {
    expect(label("\u0120the")).toBe("\u2423the");
    expect(label("\u2581a\n")).toBe("\u2423a\u21b5");
    expect(label("")).toBe("\u2423");
  });
  it("neither turn the direction of a line nor hide characters", () => {
    expect(label("a\u202eb\u0000")).toBe("a\ufffdb\ufffd");
  });
  it("are cut between characters, never inside one", () => {
    expect(shortLabel("\u{1f642}".repeat(20), 5)).toBe(`${"\u{1f642}".repeat(4)}\u2026`);
    expect(shortLabel("short")).toBe("short");
  });
});

describe("names of what is explained", () => {
  it("show the space before a token, of one or of a difference", () => {
    expect(phrase(" Paris")).toBe("\u2423Paris");
    expect(phrase(" Paris -  London")).toBe("\u2423Paris - \u2423London");
    expect(phrase("Paris - London")).toBe("Paris - London");
    expect(phrase("very  good")).toBe("very good");
    expect(phrase("\n")).toBe("\u21b5");
  });
});

describe("attention sinks", () => {
  it("are the tokens that the result names, and the words that have one", () => {
    const sunk = { ...table, sink: [0, 0, 1, 0, 0] };
    expect([0, 1, 2].map((token) => holdsSink(sunk, [token]))).toEqual([false, false, true]);
    expect(unitsOf(sunk, { kind: "word", special: true }).members.map((unit) => holdsSink(sunk, unit))).toEqual([
      false,
      true,
      false,
      false,
    ]);
    expect(holdsSink(table, [0, 1])).toBe(false);
  });
});

describe("units", () => {
  it("are tokens, or words with special tokens on their own", () => {
    expect(unitsOf(table, { kind: "token", special: true }).members).toEqual([[0], [1], [2], [3], [4]]);
    const words = unitsOf(table, { kind: "word", special: true });
    expect(words.members).toEqual([[0], [1, 2], [3], [4]]);
    expect(words.labels).toEqual(["[CLS]", "untold", "joy", "[SEP]"]);
    expect(words.of).toEqual([0, 1, 1, 2, 3]);
  });
  it("can leave special tokens out", () => {
    const units = unitsOf(table, { kind: "word", special: false });
    expect(units.labels).toEqual(["untold", "joy"]);
    expect(units.of).toEqual([-1, 0, 0, 1, -1]);
  });
  it("keep the same word number of two groups apart", () => {
    const groups = { ...table, word: [0, 0, 0, 0, 0], group: ["target", "target", "source", "source", "source"] };
    expect(unitsOf(groups, { kind: "word", special: true }).members).toEqual([
      [0, 1],
      [2, 3, 4],
    ]);
  });
  it("know when there are no words", () => {
    expect(hasWords(table)).toBe(true);
    expect(hasWords({ ...table, word: [-1, -1, -1, -1, -1] })).toBe(false);
  });
  it("are sentences and blocks of a longer text", () => {
    const token = Array.from({ length: 120 }, (_, at) => (at % 40 === 39 ? "." : `w${at % 7}`));
    const long: TokenTable = { ...table, token, position: [...token.keys()], special: token.map(() => 0) };
    long.word = token.map((_, at) => at);
    long.wordText = token;
    expect(kindsOf(long)).toEqual(["token", "word", "sentence", "block"]);
    expect(unitsOf(long, { kind: "sentence", special: true }).members.map(({ length }) => length)).toEqual([
      40, 40, 40,
    ]);
    const blocks = unitsOf(long, { kind: "block", special: true });
    expect(blocks.members.flat()).toEqual([...token.keys()]);
    expect(blocks.members.length).toBeLessThanOrEqual(48);
    expect(blocks.labels[0]).toBe("1\u20134");
    expect(kindsOf(table)).toEqual(["token", "word"]);
  });
  it("are sentences of one text of a pair alone", () => {
    const token = ["[CLS]", "who", "[SEP]", "me", ".", "[SEP]"];
    const table: TokenTable = {
      position: [...token.keys()],
      token,
      special: [1, 0, 1, 0, 0, 1],
      word: [-1, 0, -1, 1, 2, -1],
      wordText: token,
      segment: [-1, 0, -1, 1, 1, -1],
    };
    expect(secondText(table)).toBe(3);
    expect(unitsOf(table, { kind: "sentence", special: false }).labels).toEqual(["who", "me."]);
    expect(kindsOf(table)).toContain("sentence");
  });
  it("that occur more than once say where, and bytes are text", () => {
    const twice = {
      ...table,
      token: ["a", "b", "a", "c", "d"],
      text: ["a", "b", "a", "\u00e9", "d"],
      special: [0, 0, 0, 0, 0],
    };
    const units = unitsOf(twice, { kind: "token", special: true });
    expect(units.shown).toEqual(["a\u2081", "b", "a\u2083", "\u00e9", "d"]);
    expect(units.labels).toEqual(["a", "b", "a", "c", "d"]);
    expect(shortLabel("a-long-long-long-token\u2081\u2082", 6)).toBe("a-lon\u2026\u2081\u2082");
  });
});
