/** The arithmetic of a view: tokens summed into words, rows or columns normalised, one map minus another. */
import { max, median } from "d3-array";
import type { Units } from "./tokens";

export interface Matrix {
  rows: number;
  columns: number;
  /** Row by row; NaN where a key does not exist. */
  values: Float32Array;
}

export type Norm = "none" | "row" | "column";

/** Sums over the tokens of a key unit, averages over those of a query unit; what does not exist does not count. */
export function aggregate(values: Float32Array, columns: number, queries: Units, keys: Units): Matrix {
  const width = keys.members.length;
  if (width === columns && queries.members.length * columns === values.length) {
    return { rows: queries.members.length, columns, values };
  }
  const out = new Float32Array(queries.members.length * width);
  queries.members.forEach((queryTokens, row) => {
    for (let column = 0; column < width; column++) {
      const keyTokens = keys.members[column]!;
      if (queryTokens.length === 1 && keyTokens.length === 1) {
        out[row * width + column] = values[queryTokens[0]! * columns + keyTokens[0]!]!;
        continue;
      }
      out[row * width + column] = meanOfSums(values, columns, queryTokens, keyTokens);
    }
  });
  return { rows: queries.members.length, columns: width, values: out };
}

function meanOfSums(values: Float32Array, columns: number, queries: number[], keys: number[]): number {
  let total = 0;
  let count = 0;
  for (const query of queries) {
    let sum = 0;
    let exists = false;
    for (const key of keys) {
      const value = values[query * columns + key]!;
      if (!Number.isNaN(value)) {
        sum += value;
        exists = true;
      }
    }
    if (exists) {
      total += sum;
      count += 1;
    }
  }
  return count > 0 ? total / count : Number.NaN;
}

/** For every row the column of its own token (-1: none); the map without those cells, and what part of its row each was. */
export function withoutOwn(matrix: Matrix, own: Int32Array): Matrix {
  const values = matrix.values.slice();
  own.forEach((column, row) => {
    if (column >= 0) values[row * matrix.columns + column] = Number.NaN;
  });
  return { ...matrix, values };
}

/** What part of every row (by absolute value) is its own token's; `owns` is what that has where it is in no column alone. */
export function ownShares({ columns, values }: Matrix, own: Int32Array, owns: Float32Array | null): Float32Array {
  return Float32Array.from(own, (column, row) => {
    const value = column < 0 ? owns?.[row] : values[row * columns + column];
    if (value === undefined) return Number.NaN;
    let sum = 0;
    for (let at = row * columns; at < (row + 1) * columns; at++) {
      const value = Math.abs(values[at]!);
      if (!Number.isNaN(value)) sum += value;
    }
    return Math.abs(value) / sum;
  });
}

/** The largest cells by absolute value, their own tokens' left out, largest first. */
export function strongest(matrix: Matrix, own: Int32Array, most: number): { row: number; column: number }[] {
  const { columns, values } = matrix;
  const sizes = values.map((value, at) => {
    const size = Math.abs(value);
    return Number.isNaN(size) || at % columns === own[Math.floor(at / columns)] ? 0 : size;
  });
  const least = sizes.toSorted()[Math.max(0, sizes.length - most)] ?? 0;
  const cells: number[] = [];
  sizes.forEach((size, at) => {
    if (size > 0 && size >= least) cells.push(at);
  });
  cells.sort((a, b) => sizes[b]! - sizes[a]!);
  return cells.slice(0, most).map((at) => ({ row: Math.floor(at / columns), column: at % columns }));
}

/** Rows or columns scaled to sum to 1 (`sizes`: by their absolute values). A row whose sum is 0 does not exist (as 0/0). */
export function normalise(matrix: Matrix, axis: Norm, sizes = false): Matrix {
  if (axis === "none") return matrix;
  return { ...matrix, values: axis === "row" ? rowShares(matrix, sizes) : columnShares(matrix, sizes) };
}

function rowShares({ rows, columns, values }: Matrix, sizes: boolean): Float32Array {
  const out = new Float32Array(values.length);
  for (let row = 0; row < rows; row++) {
    const [begin, end] = [row * columns, (row + 1) * columns];
    let sum = 0;
    for (let at = begin; at < end; at++) {
      const value = values[at]!;
      if (!Number.isNaN(value)) sum += sizes ? Math.abs(value) : value;
    }
    for (let at = begin; at < end; at++) out[at] = values[at]! / sum;
  }
  return out;
}

function columnShares({ rows, columns, values }: Matrix, sizes: boolean): Float32Array {
  const out = new Float32Array(values.length);
  const sums = new Float64Array(columns);
  for (let row = 0, at = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, at++) {
      const value = values[at]!;
      if (!Number.isNaN(value)) sums[column]! += sizes ? Math.abs(value) : value;
    }
  }
  for (let row = 0, at = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, at++) out[at] = values[at]! / sums[column]!;
  }
  return out;
}

export function subtract(after: Matrix, before: Matrix): Matrix {
  return { ...after, values: after.values.map((value, at) => value - before.values[at]!) };
}

/** How far colours reach, and the largest absolute value there is. */
export interface Range {
  limit: number;
  most: number;
}

/** The largest absolute value of every row (0 where nothing exists). */
export function rowMaxima({ rows, columns, values }: Matrix): Float32Array {
  const maxima = new Float32Array(rows);
  for (let row = 0, at = 0; row < rows; row++) {
    let most = 0;
    for (const end = at + columns; at < end; at++) {
      const value = Math.abs(values[at]!);
      if (value > most) most = value;
    }
    maxima[row] = most;
  }
  return maxima;
}

/** From the maxima of rows: the largest, but at most `outlier` times what is typical, so that a few do not pale the rest. */
export function typicalRange(maxima: Float32Array, outlier: number): Range {
  const most = max(maxima) ?? 0;
  const typical = median(maxima.filter((value) => value > 0)) ?? 0;
  return { limit: Math.min(most, outlier * typical), most };
}
