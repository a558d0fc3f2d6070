import { describe, expect, it } from "vitest";
import { decodeBlock, Rows } from "../../src/model/decode";

async function packed(values: ArrayBufferView<ArrayBuffer>): Promise<string> {
  const stream = new Blob([values]).stream().pipeThrough(new CompressionStream("deflate"));
  return btoa(String.fromCharCode(...new Uint8Array(await new Response(stream).arrayBuffer())));
}

describe("blocks", () => {
  it("are logarithmic codes below the largest of each row", async () => {
    const block = {
      bits: 16 as const,
      shape: [2, 3],
      // Two steps of a factor of 2: 4, 2, 1 are codes 3, 2, 1; 4 and more are negative.
      data: await packed(Uint8Array.of(3, 2, 255, 0, 5, 1, 0, 0, 255, 0, 0, 0)),
      scale: await packed(Float32Array.of(4, 8)),
      step: Math.LN2,
      top: 3,
      error: 0.01,
    };
    const rows = await decodeBlock(block);
    const values = [...rows.read(0, 2)];
    expect(values.map((value) => Math.round(value * 1e5) / 1e5)).toEqual([4, 2, Number.NaN, 0, -4, 2]);
    expect([...rows.read(1, 1)]).toEqual(values.slice(3));
    expect(rows.exact).toBe(false);
    expect(rows.error).toBe(0.01);
  });
  it("may be float32, as analysed", async () => {
    const rows = await decodeBlock({ bits: 32, shape: [1, 2], data: await packed(Float32Array.of(0.1, Number.NaN)) });
    expect([...rows.read(0, 1)]).toEqual([Math.fround(0.1), Number.NaN]);
    expect(rows.exact).toBe(true);
  });
  it("of the wrong size are refused", async () => {
    await expect(decodeBlock({ bits: 32, shape: [9], data: await packed(Uint8Array.of(1)) })).rejects.toThrow("bytes");
  });
  it("give any rows", () => expect([...new Rows([3, 1], Float32Array.of(1, 2, 3)).read(1, 2)]).toEqual([2, 3]));
});
