import { describe, expect, it } from "vitest";
import { imageBox, ribbonLayout } from "../../src/draw/ribbons";
import {
  accountOf,
  hasImage,
  largestOf,
  partnersOf,
  strongestPairs,
  sumsOf,
  unitKinds,
  withMargins,
} from "../../src/model/similarity";
import { fitSimilarityState, initialSimilarityState, parseSimilarityState } from "../../src/model/similaritystate";
import { guitarist } from "../samples";

const sum = (values: Iterable<number>): number => [...values].reduce((total, value) => total + value, 0);

describe("a similarity in units", () => {
  const tokens = accountOf(guitarist(), { kind: "token", special: true });
  const words = accountOf(guitarist(), { kind: "word", special: true });

  it("has a cell for every pair", () => expect([tokens.table!.rows, tokens.table!.columns]).toEqual([3, 2]));
  it("adds the tokens of a word up", () => {
    expect(words.lines.first.units.texts).toEqual(["[CLS]", "guitarist"]);
    expect(words.table!.values[2]).toBeCloseTo(0.5, 6);
    expect(words.lines.first.shares[1]).toBeCloseTo(0.5, 12);
  });
  it("keeps every sum", () => expect(sum(words.table!.values)).toBeCloseTo(sum(tokens.table!.values), 6));
  it("knows which tokens continue a word", () => expect(tokens.lines.first.joined).toEqual([false, false, true]));
  it("leaves special tokens out when they are hidden", () => {
    const plain = accountOf(guitarist(), { kind: "token", special: false });
    expect([plain.table!.rows, plain.table!.columns]).toEqual([2, 1]);
    expect([...plain.table!.values]).toEqual([0.375, 0.125]);
  });
  it("offers words only where the table is of words already", () => {
    expect(unitKinds(guitarist())).toEqual(["token", "word"]);
    expect(unitKinds({ ...guitarist(), unit: "word" })).toEqual(["word"]);
  });
});

describe("the table with its margins", () => {
  const { matrix, queries } = withMargins(accountOf(guitarist(), { kind: "token", special: true }));

  it("adds up to all of the table, the margins and the constant", () => {
    const parts = sumsOf(guitarist()).map(([, value]) => value);
    expect(sum(matrix.values)).toBeCloseTo(sum(parts.slice(0, -1)), 6);
    expect(sum(parts.slice(0, -1))).toBeCloseTo(parts.at(-1)!, 6);
  });
  it("has the biases last, in a group of their own", () => {
    expect(queries.shown.at(-1)).toBe("bias");
    expect(new Set(queries.group).size).toBe(2);
  });
});

describe("the strongest pairs", () => {
  const { table } = accountOf(guitarist(), { kind: "token", special: true });

  it("are the fewest that carry a share", () => {
    const { pairs, carried } = strongestPairs(table!, 0.6);
    expect(pairs.map(({ first, second }) => [first, second])).toEqual([[1, 0]]);
    expect(carried).toBeCloseTo(0.375 / 0.6, 6);
  });
  it("are all but the empty ones where all is shown", () => {
    const { pairs, carried } = strongestPairs(table!, 1);
    expect(pairs.length).toBe(5);
    expect(carried).toBeCloseTo(1, 12);
  });
  it("of one token are its row or its column", () => {
    expect([...partnersOf(table!, "first", 1)]).toEqual([0.375, 0.02500000037252903]);
    expect([...partnersOf(table!, "second", 0)]).toEqual([0.05000000074505806, 0.375, 0.125]);
  });
});

describe("the state", () => {
  const initial = initialSimilarityState(guitarist());

  it("begins with words", () => expect(initial.units).toBe("word"));
  it("takes only what there is", () => {
    const parsed = parseSimilarityState("units=paragraph&share=400&first=2&second=9&pair=7", initial);
    expect(fitSimilarityState(parsed, [guitarist()])).toMatchObject({
      units: "word",
      share: 100,
      first: 2,
      second: -1,
      pair: 0,
    });
  });
});

describe("an image and a text", () => {
  const pictured = guitarist();
  pictured.sides.first = { ...pictured.sides.first, tokens: { ...pictured.sides.first.tokens } };
  Object.assign(pictured.sides.first.tokens, { token: ["[CLS]", "0,0", "0,1"], row: [-1, 0, 0], column: [-1, 0, 1] });
  const account = accountOf(pictured, { kind: "sentence", special: true });

  it("have patches on one side, which are no sentences, and are named so", () => {
    expect(account.lines.first.patches).toEqual([null, { row: 0, column: 0 }, { row: 0, column: 1 }]);
    expect(account.lines.first.units.shown).toEqual(["[CLS]", "patch\u00a00,0", "patch\u00a00,1"]);
    expect(account.lines.second.patches).toBeNull();
    expect(hasImage(account)).toBe(true);
  });
  it("are coloured up to the largest patch, whatever the class token does", () => {
    expect(largestOf(account.lines.first, [9, -2, 1])).toBe(2);
    expect(largestOf(account.lines.second, [9, -2])).toBe(9);
  });
  it("lie as the patches lie in the image", () => {
    const at = ribbonLayout(account, [], 600, (text, size) => (text.length * size) / 2);
    const [cls, one, other] = at.chips.first;
    expect(other!.x).toBeCloseTo(one!.x + one!.width, 6);
    expect(other!.y).toBe(one!.y);
    expect(one!.y).toBeGreaterThan(cls!.y + cls!.height);
    expect(imageBox(at, "first", account.lines.first)).toMatchObject({ x: one!.x, width: 2 * one!.width });
  });
});
