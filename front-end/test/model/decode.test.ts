import { describe, expect, it } from "vitest";
import { decodeBlock, Rows } from "../../src/model/decode";

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
