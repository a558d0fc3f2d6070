import { expect, it } from "vitest";
import * as format from "../../src/model/format";

it("writes numbers as people read them", () => {
  expect([0, 0.0001234, 0.5, 12.345, 12345, Number.NaN].map(format.number)).toEqual([
    "0",
    "1.23e-4",
    "0.5",
    "12.3",
    "12,345",
    "\u2013",
  ]);
  expect(format.cell(0.5, "row", true)).toBe("+50.0%");
});
