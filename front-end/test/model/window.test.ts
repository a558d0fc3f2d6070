import { expect, test } from "vitest";
import { fittedStart, formatStart, parseStart, withoutStart } from "../../src/model/window";

const FACTS = { queries: 1000, keys: 2000, source: null, block: 16, window: 128 };

test("a start in a fragment is read back, and kept within the result", () => {
  expect(parseStart("row=5&column=7&layer=2", FACTS)).toEqual({ row: 5, column: 7 });
  expect(parseStart("row=9999&column=9999", FACTS)).toEqual({ row: 872, column: 1872 });
  expect(parseStart("row=5", FACTS)).toBeNull();
  expect(parseStart("row=-5&column=x", FACTS)).toBeNull();
  expect(fittedStart({ row: -3, column: 10.4 }, FACTS)).toEqual({ row: 0, column: 10 });
});

test("a start stands before how things are looked at", () => {
  expect(formatStart({ row: 1, column: 2 }, "layer=3&row=9&column=9")).toBe("row=1&column=2&layer=3");
  expect(formatStart(null, "row=9&column=9")).toBe("");
  expect(withoutStart("row=1&layer=3")).toBe("layer=3");
});
