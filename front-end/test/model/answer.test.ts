import { describe, expect, it } from "vitest";
import {
  type Answer,
  chosenOf,
  fedBy,
  fullFed,
  fullShare,
  parseAnswerState,
  ranking,
  sharesOf,
  sum,
  WordShares,
  wordTexts,
} from "../../src/model/answer";
import { Rows } from "../../src/model/decode";

const item = (text: string, ranked = true) => ({ text, source: ranked ? "notes" : "", tokens: 1, ranked });

const words = (...rows: number[][]) => new WordShares(new Rows([rows.length, 4], Float32Array.from(rows.flat())));

const view = {
  name: "direct" as const,
  total: [0.5, -1.5, 2, 0.25],
  rows: words([0.5, -1, 1, 0.25], [0, -0.5, 1, 0]),
};

const answer: Answer = {
  facts: {},
  unit: "sentence",
  value: 1.25,
  error: 1e-8,
  explained: "",
  items: [item("one"), item("two"), item("three"), item("biases", false)],
  sources: [],
  answer: [
    { text: "In", word: 0 },
    { text: " ", word: -1 },
    { text: "Oslo", word: 1 },
  ],
  words: 2,
  views: [view],
  missing: "",
};

describe("the shares of an answer", () => {
  it("are those of all of it, or of a word", () => {
    expect(sharesOf(view, null)).toBe(view.total);
    expect(sharesOf(view, { kind: "item", index: 1 })).toBe(view.total);
    expect(sharesOf(view, { kind: "word", index: 1 })).toEqual(Float32Array.of(0, -0.5, 1, 0));
    expect(sharesOf({ ...view, rows: null }, { kind: "word", index: 1 })).toBe(view.total);
  });
  it("say what an item put into every word", () => {
    expect(fedBy(view, 1)).toEqual([-1, -0.5]);
    expect(fedBy({ ...view, rows: null }, 1)).toBeNull();
  });
  it("get the full colour if they are large, and stay pale together if all are tiny", () => {
    expect(fullShare(answer, view.total)).toBe(2);
    expect(fullShare(answer, [0.01, -0.02, 0, 9.97])).toBeCloseTo(1, 12);
    expect(fullFed(view, [-1, -0.5])).toBe(1);
    expect(fullFed({ ...view, rows: words([0, 0, 0, 8], [0, 0, 1, 0]) }, [0, 0])).toBeCloseTo(0.8, 6);
  });
  it("belong to words without the spaces between them", () => expect(wordTexts(answer)).toEqual(["In", "Oslo"]));
});

describe("the ranking", () => {
  it("goes from the highest share to the lowest, and has no item that was left out", () =>
    expect(ranking(answer.items, view.total, 12).map((line) => line.item)).toEqual([2, 0, 1]));
  it("keeps the largest of either sign and adds up the rest", () => {
    const lines = ranking(answer.items, view.total, 1);
    expect(lines).toEqual([
      { item: 2, share: 2, count: 1 },
      { item: -1, share: -1, count: 2 },
    ]);
    expect(sum(lines.map(({ share }) => share)) + view.total[3]!).toBe(answer.value);
  });
  it("does not put a single item under others", () =>
    expect(ranking(answer.items, view.total, 2).map((line) => line.item)).toEqual([2, 0, 1]));
});

describe("the state of the page", () => {
  it("takes a word or an item, not both", () => {
    expect(chosenOf(parseAnswerState("word=1&item=2", answer))).toEqual({ kind: "word", index: 1 });
    expect(chosenOf(parseAnswerState("item=2", answer))).toEqual({ kind: "item", index: 2 });
  });
  it("ignores what there is not", () => {
    const state = parseAnswerState("word=9&item=9&view=reasoning&theme=blue", answer);
    expect(state).toEqual({ view: "direct", word: -1, item: -1, theme: "auto" });
  });
});
