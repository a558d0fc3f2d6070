import { describe, expect, it } from "vitest";
import house from "../../../src/normscope/plots/palette.json";
import { inkOn, type Palette, palette, shade } from "../../src/draw/colour";
import type { State } from "../../src/model/state";

interface Wanted {
  limit?: number;
  diverging?: boolean;
  dark?: boolean;
  scale?: "linear" | "root";
  colours?: State["colours"];
}

function made({
  limit = 1,
  diverging = false,
  dark = false,
  scale = "linear",
  colours = "normscope",
}: Wanted): Palette {
  return palette(colours, { limit, most: limit, scale: { kind: scale } }, { diverging, dark });
}

const luminance = (css: string): number =>
  [0.3, 0.59, 0.11].reduce((sum, part, at) => sum + part * Number.parseInt(css.slice(1 + 2 * at, 3 + 2 * at), 16), 0);

describe("colours", () => {
  it.each(["normscope", "magma", "viridis", "cividis", "greys"] as const)(
    "of %s grow evenly darker on paper, and lighter at night",
    (colours) => {
      const light = made({ colours }).css.map(luminance);
      const dark = made({ colours, dark: true }).css.map(luminance);
      expect(light.every((value, at) => at === 0 || value <= light[at - 1]! + 1)).toBe(true);
      expect(dark.every((value, at) => at === 0 || value >= dark[at - 1]! - 1)).toBe(true);
    },
  );
  it("begin and end with those of the house", () => {
    const { css } = made({});
    expect([css[0], css[255]]).toEqual([house.sequential[0], house.sequential.at(-1)]);
    expect([made({ dark: true }).css[0], made({ dark: true }).css[255]]).toEqual([css[255], css[0]]);
  });
  it("put zero in the middle of a difference", () => {
    const diverging = made({ limit: 2, diverging: true });
    expect([-2, 0, 2, 9].map((value) => shade(value, diverging))).toEqual([0, 128, 255, 255]);
    expect(luminance(diverging.css[128]!)).toBeGreaterThan(240);
    expect(luminance(made({ diverging: true, dark: true }).css[128]!)).toBeLessThan(40);
  });
  it("cope with a map of zeros", () => expect(shade(0, made({ limit: 0 }))).toBe(0));
  it("show small values better with the root", () => expect(shade(0.25, made({ scale: "root" }))).toBe(128));
  it("have an ink that can be read on all of them", () => {
    const linear = (part: number): number => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const light = (css: string): number =>
      [0.2126, 0.7152, 0.0722].reduce(
        (sum, part, at) => sum + part * linear(Number.parseInt(css.slice(1 + 2 * at, 3 + 2 * at), 16) / 255),
        0.05,
      );
    for (const css of [
      ...made({}).css,
      ...made({ diverging: true }).css,
      ...made({ diverging: true, dark: true }).css,
    ]) {
      const [one, other] = [light(css), light(inkOn(css))];
      expect(Math.max(one, other) / Math.min(one, other)).toBeGreaterThanOrEqual(4.5);
    }
  });
});
