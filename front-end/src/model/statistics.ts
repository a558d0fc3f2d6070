/** How alike two lists of numbers are. */
import { mean } from "d3-array";

export function pearson(first: readonly number[], second: readonly number[]): number {
  const [a, b] = [mean(first) ?? 0, mean(second) ?? 0];
  let [both, one, other] = [0, 0, 0];
  first.forEach((value, at) => {
    const [x, y] = [value - a, second[at]! - b];
    both += x * y;
    one += x * x;
    other += y * y;
  });
  return both / Math.sqrt(one * other);
}

/** Pearson's correlation of ranks; values that are the same share the mean of their ranks. */
export function spearman(first: readonly number[], second: readonly number[]): number {
  return pearson(ranks(first), ranks(second));
}

function ranks(values: readonly number[]): number[] {
  const order = [...values.keys()].sort((a, b) => values[a]! - values[b]!);
  const out = new Array<number>(values.length);
  for (let begin = 0; begin < order.length; ) {
    let end = begin;
    while (end < order.length && values[order[end]!] === values[order[begin]!]) end++;
    for (let at = begin; at < end; at++) out[order[at]!] = (begin + end - 1) / 2;
    begin = end;
  }
  return out;
}
