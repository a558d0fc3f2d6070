import { describe, expect, it } from "vitest";
import { groupNames } from "../../src/draw/mapmarks";

describe("names of key groups", () => {
  const widthOf = (text: string): number => 6 * text.length;
  const at = { left: 40, scrollX: 0, cell: 10, plotWidth: 300, width: 360 };
  const names = (own: number): string[] =>
    groupNames(
      at,
      [
        ["target", 0, own],
        ["source", own, 30 - own],
      ],
      widthOf,
    ).map(({ name }) => name);

  it("are whole where there is room", () => expect(names(15)).toEqual(["target (decoder)", "source (encoder)"]));
  it("are short beside the next one", () => expect(names(6)).toEqual(["target", "source (encoder)"]));
  it("are left out rather than drawn over the next one", () => expect(names(2)).toEqual(["source (encoder)"]));
  it("end before the picture does", () => expect(names(25)).toEqual(["target (decoder)", "source"]));
});
