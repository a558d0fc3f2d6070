/** Which token of one analysis stands where a token of another does, so that a selection in one is shown in both. */

const MOST_CELLS = 1_200_000;
const FEWEST_MATCHES = 0.3;

function folded(token: string): string {
  return token.replace(/^(##|\u0120|\u2581)+/u, "").toLowerCase();
}

/** For every token of `from` the index of its counterpart in `to`, or -1. Unlike texts are linked by position. */
export function align(from: readonly string[], to: readonly string[]): number[] {
  const byPosition = from.map((_, index) => (index < to.length ? index : -1));
  const [a, b] = [from.map(folded), to.map(folded)];
  if (a.length === b.length && a.every((token, index) => token === b[index])) return byPosition;
  if (a.length * b.length > MOST_CELLS) return byPosition;
  const counterparts = withMoved(commonSubsequence(a, b), a, b);
  const matches = counterparts.filter((index) => index >= 0).length;
  return matches < FEWEST_MATCHES * Math.min(a.length, b.length) ? byPosition : counterparts;
}

/** A token that is elsewhere in the other text is linked, too, if each text has it once. */
function withMoved(counterparts: number[], a: string[], b: string[]): number[] {
  const once = (tokens: string[], token: string): number =>
    tokens.indexOf(token) === tokens.lastIndexOf(token) ? tokens.indexOf(token) : -1;
  const taken = new Set(counterparts);
  return counterparts.map((index, at) => {
    if (index >= 0 || once(a, a[at]!) < 0) return index;
    const place = once(b, a[at]!);
    return taken.has(place) ? -1 : place;
  });
}

function commonSubsequence(a: string[], b: string[]): number[] {
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const longer = Math.max(lengths[(i + 1) * width + j]!, lengths[i * width + j + 1]!);
      lengths[i * width + j] = a[i] === b[j] ? Math.max(longer, lengths[(i + 1) * width + j + 1]! + 1) : longer;
    }
  }
  const counterparts: number[] = [];
  for (let i = 0, j = 0; i < a.length; i++) {
    while (
      j < b.length &&
      a[i] !== b[j] &&
      lengths[i * width + j + 1]! >= lengths[(i + 1) * width + j]! &&
      lengths[i * width + j + 1]! > 0
    ) {
      j++;
    }
    counterparts.push(j < b.length && a[i] === b[j] ? j++ : -1);
  }
  return counterparts;
}
