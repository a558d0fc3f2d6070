import { describe, expect, it } from "vitest";
import type { Palette } from "../../src/draw/colour";
import { axisOf, goesBeyond } from "../../src/draw/legend";

const palette = (parts: Partial<Palette>): Palette => ({
  table: new Uint32Array(256),
  css: [],
  limit: 1,
  most: 1,
  diverging: false,
  root: true,
  ...parts,
});

describe("the ticks of a colour bar", () => {
  it("have room, and 0 has one, whatever the limit", () => {
    for (const limit of [0.003, 0.7, 1, 3, 37, 99, 12345]) {
      for (const diverging of [false, true]) {
        const axis = axisOf(palette({ limit, diverging }), 220, "none");
        const places = axis.tickValues()!.map((tick) => axis.scale()(tick) ?? Number.NaN);
        const distances = places
          .toSorted((a, b) => a - b)
          .slice(1)
          .map((place, at) => place - places.toSorted((a, b) => a - b)[at]!);
        expect(axis.tickValues()).toContain(0);
        expect(places.length).toBeGreaterThan(1);
        expect(Math.min(...distances)).toBeGreaterThanOrEqual(32);
      }
    }
  });
});

it("the last colour goes beyond the limit only where a value does", () => {
  expect(goesBeyond(palette({ most: 1 }))).toBe(false);
  expect(goesBeyond(palette({ most: 1.5 }))).toBe(true);
});
