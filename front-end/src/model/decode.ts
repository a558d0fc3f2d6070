/** From packed blocks to numbers: base64, then inflate, then codes that are scaled row by row when asked for. */
import type { Block } from "./payload";

export async function inflate(base64: string): Promise<Uint8Array> {
  const packed = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** An array whose last axis is a row. Rows come out as float32, NaN where a value does not exist. */
export class Rows {
  constructor(
    readonly shape: readonly number[],
    private readonly codes: Uint8Array | Uint16Array | Float32Array,
    private readonly scale: Float32Array | null,
  ) {}

  /** Whether values are as analysed, not quantised for display. */
  get exact(): boolean {
    return this.scale === null;
  }

  /** `count` rows from row `first` on, as one array. */
  read(first: number, count: number): Float32Array {
    const width = this.shape[this.shape.length - 1] ?? 0;
    const begin = first * width;
    const { scale } = this;
    const codes = this.codes.subarray(begin, begin + count * width);
    if (scale === null) return Float32Array.from(codes);
    const missing = codes instanceof Uint8Array ? 255 : 65535;
    const values = new Float32Array(count * width);
    for (let row = 0, at = 0; row < count; row++) {
      const step = (scale[first + row] ?? 0) / (missing - 1);
      for (let column = 0; column < width; column++, at++) {
        const code = codes[at]!;
        values[at] = code === missing ? Number.NaN : code * step;
      }
    }
    return values;
  }
}

export async function decodeBlock(block: Block): Promise<Rows> {
  const bytes = await inflate(block.data);
  const expected = block.shape.reduce((product, size) => product * size, 1) * (block.bits / 8);
  if (bytes.byteLength !== expected) throw new Error(`A block has ${bytes.byteLength} bytes, not ${expected}.`);
  if (block.bits === 32) return new Rows(block.shape, new Float32Array(bytes.buffer), null);
  const scale = new Float32Array((await inflate(block.scale ?? "")).buffer);
  const codes = block.bits === 8 ? bytes : new Uint16Array(bytes.buffer);
  return new Rows(block.shape, codes, scale);
}
