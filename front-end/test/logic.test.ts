import { describe, expect, it } from "vitest";
import { palette, shade } from "../src/draw/colour";
import { cellAt, layout, type Room, reveal } from "../src/draw/geometry";
import { align } from "../src/model/align";
import { decodeBlock, Rows } from "../src/model/decode";
import * as format from "../src/model/format";
import { stepsOf } from "../src/model/scopes";
import type { State } from "../src/model/state";

async function packed(values: ArrayBufferView<ArrayBuffer>): Promise<string> {
  const stream = new Blob([values]).stream().pipeThrough(new CompressionStream("deflate"));
  return btoa(String.fromCharCode(...new Uint8Array(await new Response(stream).arrayBuffer())));
}

describe("blocks", () => {
  it("are scaled row by row, the highest code being missing", async () => {
    const block = {
      bits: 8 as const,
      shape: [2, 3],
      data: await packed(Uint8Array.of(254, 127, 255, 0, 254, 0)),
      scale: await packed(Float32Array.of(2, 10)),
    };
    const rows = await decodeBlock(block);
    expect([...rows.read(0, 2)]).toEqual([2, 1, Number.NaN, 0, 10, 0]);
    expect(rows.exact).toBe(false);
  });
  it("may be float32, as analysed", async () => {
    const rows = await decodeBlock({ bits: 32, shape: [1, 2], data: await packed(Float32Array.of(0.1, Number.NaN)) });
    expect([...rows.read(0, 1)]).toEqual([Math.fround(0.1), Number.NaN]);
    expect(rows.exact).toBe(true);
  });
  it("of the wrong size are refused", async () => {
    await expect(decodeBlock({ bits: 16, shape: [9], data: await packed(Uint8Array.of(1)) })).rejects.toThrow("bytes");
  });
  it("give any rows", () => expect([...new Rows([3, 1], Float32Array.of(1, 2, 3), null).read(1, 2)]).toEqual([2, 3]));
});

describe("steps", () => {
  it("name what each scope adds", () => {
    const titles = stepsOf(["AttnW", "Attn", "AttnRes", "AttnResLn", "AttnResLnFf"]).map(({ title }) => title);
    expect(titles).toEqual(["weights", "\u00d7 values", "+ residual", "+ norm", "+ feed-forward"]);
  });
  it("name several where scopes were left out, and cross-attention", () => {
    expect(stepsOf(["Attn", "AttnResLn"])[1]!.title).toBe("+ residual + norm");
    expect(
      stepsOf(["AttnResLn", "CrossW", "AttnResLnCross"])
        .map(({ title }) => title)
        .slice(1),
    ).toEqual(["cross weights", "+ cross-attention"]);
  });
});

describe("alignment", () => {
  it("is by place for equal tokens, whatever the marks of their tokenizers", () => {
    expect(align(["\u0120the", "cat"], ["the", "##cat"])).toEqual([0, 1]);
  });
  it("follows an insertion", () =>
    expect(align(["a", "b", "c", "d"], ["a", "x", "b", "c", "d"])).toEqual([0, 2, 3, 4]));
  it("has no counterpart for what is only in one", () =>
    expect(align(["a", "b", "c"], ["a", "c"])).toEqual([0, -1, 1]));
  it("is by place for unlike texts", () => expect(align(["a", "b", "c", "d"], ["w", "x", "y"])).toEqual([0, 1, 2, -1]));
});

describe("geometry", () => {
  const room: Room = {
    width: 800,
    height: 700,
    rows: 20,
    columns: 20,
    rowLabels: 60,
    columnLabels: 60,
    zoom: 1,
    scrollX: 0,
    scrollY: 0,
    header: 0,
  };
  it("fits the map into its room, with whole pixels", () => {
    const at = layout(room);
    expect(at.cell).toBe(Math.floor(at.cell));
    expect(at.left + at.plotWidth).toBeLessThanOrEqual(room.width);
    expect(at.top + at.plotHeight).toBeLessThanOrEqual(room.height);
  });
  it("finds cells and labels under the pointer", () => {
    const at = layout(room);
    expect(cellAt(at, at.left + 2.5 * at.cell, at.top + 3.5 * at.cell)).toEqual({ row: 3, column: 2 });
    expect(cellAt(at, at.left - 5, at.top + 1)).toEqual({ row: 0, column: -1 });
    expect(cellAt(at, at.left + 1, at.top - 5)).toEqual({ row: -1, column: 0 });
    expect(cellAt(at, 1, 1)).toBeNull();
  });
  it("scrolls to a cell when zoomed", () => {
    const at = layout({ ...room, rows: 512, columns: 512, zoom: 10 });
    expect(at.labelStep).toBe(1);
    const moved = reveal(at, { row: 511, column: 0 });
    expect(moved.scrollX).toBe(0);
    expect(moved.scrollY).toBeCloseTo(512 * at.cell - at.plotHeight);
  });
  it("shows some labels when cells are small", () =>
    expect(layout({ ...room, rows: 512, columns: 512 }).labelStep).toBeGreaterThan(4));
});

describe("colours", () => {
  const state = { base: "", colours: "magma", scale: "linear" } as State;
  it("grow evenly darker on paper, and lighter at night", () => {
    const luminance = (css: string): number =>
      Number.parseInt(css.slice(1, 3), 16) * 0.3 +
      Number.parseInt(css.slice(3, 5), 16) * 0.59 +
      Number.parseInt(css.slice(5, 7), 16) * 0.11;
    for (const colours of ["magma", "viridis", "cividis", "greys"] as const) {
      const light = palette({ ...state, colours }, 1, false).css.map(luminance);
      const dark = palette({ ...state, colours }, 1, true).css.map(luminance);
      expect(light.every((value, at) => at === 0 || value <= light[at - 1]! + 1)).toBe(true);
      expect(dark.every((value, at) => at === 0 || value >= dark[at - 1]! - 1)).toBe(true);
    }
  });
  it("put zero in the middle of a difference", () => {
    const diverging = palette({ ...state, base: "Attn" }, 2, false);
    expect([-2, 0, 2].map((value) => shade(value, diverging))).toEqual([0, 128, 255]);
  });
  it("cope with a map of zeros", () => expect(shade(0, palette(state, 0, false))).toBe(0));
  it("show small values better with the root", () =>
    expect(shade(0.25, palette({ ...state, scale: "root" }, 1, false))).toBe(128));
});

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
