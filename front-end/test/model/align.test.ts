import { describe, expect, it } from "vitest";
import { align } from "../../src/model/align";

describe("alignment", () => {
  it("is by place for equal tokens, whatever the marks of their tokenizers", () => {
    expect(align(["\u0120the", "cat"], ["the", "##cat"])).toEqual([0, 1]);
  });
  it("follows an insertion", () =>
    expect(align(["a", "b", "c", "d"], ["a", "x", "b", "c", "d"])).toEqual([0, 2, 3, 4]));
  it("has no counterpart for what is only in one", () =>
    expect(align(["a", "b", "c"], ["a", "c"])).toEqual([0, -1, 1]));
  it("finds what has moved, if there is one of it", () => {
    const [active, passive] = ["the chef opened a door .", "a door was opened by the chef ."].map((text) =>
      text.split(" "),
    );
    expect(align(active!, passive!)).toEqual([5, 6, 3, 0, 1, 7]);
    expect(align(["a", "x", "b", "c", "x"], ["x", "a", "b", "c"])).toEqual([1, -1, 2, 3, -1]);
  });
  it("is by place for unlike texts", () => expect(align(["a", "b", "c", "d"], ["w", "x", "y"])).toEqual([0, 1, 2, -1]));
});
