import { describe, expect, it } from "vitest";
import {
  aggregate,
  normalise,
  ownShares,
  rowMaxima,
  strongest,
  subtract,
  typicalRange,
  withoutOwn,
} from "../../src/model/matrix";
import type { TokenTable } from "../../src/model/payload";
import { unitsOf } from "../../src/model/tokens";

const table = (word: number[]): TokenTable => ({
  position: word.map((_, index) => index),
  token: word.map(String),
  special: word.map(() => 0),
  word,
  wordText: word.map(String),
});

describe("aggregate", () => {
  it("sums keys and averages queries", () => {
    const units = unitsOf(table([0, 0, 1]), { kind: "word", special: true });
    const made = aggregate(Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9), 3, units, units);
    expect([...made.values]).toEqual([6, 4.5, 15, 9]);
  });
  it("counts only what exists, and is missing where nothing does", () => {
    const units = unitsOf(table([0, 0, 1]), { kind: "word", special: true });
    const made = aggregate(Float32Array.of(1, Number.NaN, Number.NaN, 2, 3, Number.NaN, 4, 5, 6), 3, units, units);
    expect([...made.values]).toEqual([3, Number.NaN, 9, 6]);
  });
});

describe("normalise", () => {
  const matrix = { rows: 2, columns: 2, values: Float32Array.of(1, 3, 2, Number.NaN) };
  it("makes rows or columns sum to one, leaving out what is missing", () => {
    expect([...normalise(matrix, "row").values]).toEqual([0.25, 0.75, 1, Number.NaN]);
    expect([...normalise(matrix, "column").values].map((value) => Math.fround(value))).toEqual([
      Math.fround(1 / 3),
      1,
      Math.fround(2 / 3),
      Number.NaN,
    ]);
  });
  it("leaves raw values alone", () => expect(normalise(matrix, "none")).toBe(matrix));
});

it("subtracts cell by cell", () => {
  const [a, b] = [Float32Array.of(1, 2), Float32Array.of(4, 1)].map((values) => ({ rows: 1, columns: 2, values }));
  expect([...subtract(a!, b!).values]).toEqual([-3, 1]);
});

describe("the range of colours", () => {
  it("goes by the largest of every row, whatever its sign", () => {
    const values = Float32Array.of(-3, 1, Number.NaN, Number.NaN, 0, 2);
    expect([...rowMaxima({ rows: 3, columns: 2, values })]).toEqual([3, 0, 2]);
  });
  it("is the largest value, but for outliers", () => {
    expect(typicalRange(Float32Array.of(1, 2, 3), 2.5)).toEqual({ limit: 3, most: 3 });
    expect(typicalRange(Float32Array.of(1, 2, 2, 90, 0), 2.5)).toEqual({ limit: 5, most: 90 });
    expect(typicalRange(Float32Array.of(0, 0), 2.5)).toEqual({ limit: 0, most: 0 });
    expect(typicalRange(new Float32Array(0), 2.5)).toEqual({ limit: 0, most: 0 });
  });
});

describe("own tokens", () => {
  const matrix = { rows: 2, columns: 3, values: Float32Array.of(6, 2, 2, 1, 3, Number.NaN) };
  const own = Int32Array.of(0, -1);
  it("are left out, and the rest add up to all", () => {
    const rest = normalise(withoutOwn(matrix, own), "row");
    expect([...rest.values]).toEqual([Number.NaN, 0.5, 0.5, 0.25, 0.75, Number.NaN]);
  });
  it("have a share that is told", () => {
    const shares = ownShares(matrix, own, null);
    expect(shares[0]).toBeCloseTo(0.6);
    expect(shares[1]).toBeNaN();
  });
  it("are not among the strongest cells", () => {
    expect(strongest(matrix, own, 2)).toEqual([
      { row: 1, column: 1 },
      { row: 0, column: 1 },
    ]);
  });
});
