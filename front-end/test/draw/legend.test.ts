import { describe, expect, it } from "vitest";
import { type Palette, shade } from "../../src/draw/colour";
import { goesBeyond, ticksOf } from "../../src/draw/legend";
import { type Scale, scaleFor } from "../../src/model/scale";

const palette = (parts: Partial<Palette>): Palette => ({
  table: new Uint32Array(256),
  css: [],
  limit: 1,
  most: 1,
  diverging: false,
  scale: { kind: "root" },
  ...parts,
});

const sizes = (limit: number): Float32Array => Float32Array.from({ length: 400 }, (_, at) => limit * (at / 399) ** 6);
const scales = (limit: number): Scale[] =>
  (["linear", "root", "log", "quantile"] as const).map((kind) => scaleFor(kind, sizes(limit), limit));

describe("the ticks of a colour bar", () => {
  it("do not collide, whatever the limit and the scale", () => {
    for (const limit of [0.00003, 0.003, 0.7, 1, 3, 37, 99, 12345]) {
      for (const scale of scales(limit)) {
        for (const diverging of [false, true]) {
          const ticks = ticksOf(palette({ limit, diverging, scale }), 220, "none").toSorted((a, b) => a.x - b.x);
          expect(ticks.length).toBeGreaterThan(1);
          ticks.slice(1).forEach((tick, at) => {
            const before = ticks[at]!;
            expect(tick.x - before.x).toBeGreaterThan(2.6 * (tick.text.length + before.text.length));
          });
        }
      }
    }
  });
  it("say different shares, however small", () => {
    for (const limit of [0.00002, 0.0011, 0.006, 0.04, 0.6, 1]) {
      const texts = ticksOf(palette({ limit }), 220, "row").map(({ text }) => text);
      expect(new Set(texts).size).toBe(texts.length);
    }
  });
  it("are the same on both sides of 0", () => {
    for (const limit of [0.3, 0.63, 1, 3]) {
      const places = ticksOf(palette({ limit, diverging: true }), 220, "row").map(({ x }) => Math.round(x - 110));
      expect(places.toSorted((a, b) => a - b)).toEqual(places.map((x) => 0 - x).toSorted((a, b) => a - b));
    }
  });
  it("are where the colours of their values are", () => {
    for (const scale of scales(50)) {
      const colours = palette({ limit: 50, scale });
      for (const { x, text } of ticksOf(colours, 255, "none")) {
        const value = Number(text.replace("\u2264\u2009", ""));
        expect(Math.abs(shade(value, colours) - x)).toBeLessThan(3);
      }
    }
  });
});

it("the last colour goes beyond the limit only where a value does", () => {
  expect(goesBeyond(palette({ most: 1 }))).toBe(false);
  expect(goesBeyond(palette({ most: 1.5 }))).toBe(true);
});

describe("a scale", () => {
  it("is the root, or logarithmic where values are of very different sizes", () => {
    expect(scaleFor("auto", Float32Array.of(0.1, 0.2, 1), 1).kind).toBe("root");
    expect(scaleFor("auto", Float32Array.of(0.0001, 0.001, 1), 1).kind).toBe("log");
    expect(scaleFor("auto", new Float32Array(0), 0).kind).toBe("root");
  });
  it("by rank gives every colour to as many cells", () => {
    const all = sizes(1);
    const colours = palette({ scale: scaleFor("quantile", all, 1) });
    const lower = all.filter((size) => shade(size, colours) < 128).length;
    expect(Math.abs(lower - all.length / 2)).toBeLessThan(4);
  });
});
