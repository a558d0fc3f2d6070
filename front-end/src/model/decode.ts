/** From packed blocks to numbers: base64, then inflate, then codes that become values row by row on request. */
import type { Block, CodeBlock } from "./payload";

export async function inflate(base64: string): Promise<Uint8Array> {
  const packed = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Codes of 16 bits: 0 is zero, the highest does not exist, and those above `top` are negative. */
const MISSING = 65535;

/** What the codes of a block stand for, before the scale of their row. */
function meanings({ step, top }: CodeBlock): Float32Array {
  const table = new Float32Array(MISSING + 1);
  for (let code = 1; code <= Math.min(2 * top, MISSING - 1); code++) {
    const size = Math.exp(((code > top ? code - top : code) - top) * step);
    table[code] = code > top ? -size : size;
  }
  table[MISSING] = Number.NaN;
  return table;
}

interface Codes {
  codes: Uint16Array;
  scale: Float32Array;
  meanings: Float32Array;
}

/** An array whose last axis is a row. Rows come out as float32, NaN where a value does not exist. */
export class Rows {
  constructor(
    readonly shape: readonly number[],
    private readonly content: Float32Array | Codes,
    /** The largest relative error of a share; 0 where values are as analysed. */
    readonly error = 0,
  ) {}

  /** Whether values are as analysed, not quantised for display. */
  get exact(): boolean {
    return this.content instanceof Float32Array;
  }

  /** One value. */
  at(row: number, column: number): number {
    const place = row * (this.shape[this.shape.length - 1] ?? 0) + column;
    const { content } = this;
    return content instanceof Float32Array
      ? content[place]!
      : (content.scale[row] ?? 0) * content.meanings[content.codes[place]!]!;
  }

  /** `count` rows from row `first` on, as one array. */
  read(first: number, count: number): Float32Array {
    const width = this.shape[this.shape.length - 1] ?? 0;
    const begin = first * width;
    const { content } = this;
    if (content instanceof Float32Array) return content.slice(begin, begin + count * width);
    const { codes, scale, meanings: table } = content;
    const values = new Float32Array(count * width);
    for (let row = 0, at = 0; row < count; row++) {
      const largest = scale[first + row] ?? 0;
      for (let column = 0; column < width; column++, at++) values[at] = largest * table[codes[begin + at]!]!;
    }
    return values;
  }
}

export async function decodeBlock(block: Block): Promise<Rows> {
  const bytes = await inflate(block.data);
  const count = block.shape.reduce((product, size) => product * size, 1);
  const expected = count * (block.bits / 8);
  if (bytes.byteLength !== expected) throw new Error(`A block has ${bytes.byteLength} bytes, not ${expected}.`);
  if (block.bits === 32) return new Rows(block.shape, new Float32Array(bytes.buffer));
  const codes = new Uint16Array(count);
  for (let at = 0; at < count; at++) codes[at] = bytes[at]! | (bytes[count + at]! << 8);
  const scale = new Float32Array((await inflate(block.scale)).buffer);
  return new Rows(block.shape, { codes, scale, meanings: meanings(block) }, block.error);
}
