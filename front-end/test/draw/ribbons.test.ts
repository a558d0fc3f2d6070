import { describe, expect, it } from "vitest";
import { pairTitle, type Ruler, ribbonLayout, ribbonMarks, ribbonsOf } from "../../src/draw/ribbons";
import { accountOf, strongestPairs } from "../../src/model/similarity";
import { guitarist } from "../samples";

const ruler: Ruler = (text, size) => (text.length * size) / 2;
const account = accountOf(guitarist(), { kind: "token", special: true });
const { pairs } = strongestPairs(account.table!, 1);

describe("two texts", () => {
  const at = ribbonLayout(account, pairs, 600, ruler);

  it("are above each other", () => {
    const bottom = at.chips.first[0]!.y + at.chips.first[0]!.height;
    expect(Math.min(...at.chips.second.map(({ y }) => y))).toBeGreaterThan(bottom + 100);
  });
  it("never overlap within a line", () => {
    for (const chips of Object.values(at.chips)) {
      chips.slice(1).forEach((chip, index) => {
        expect(chip.x).toBeGreaterThan(chips[index]!.x + chips[index]!.width);
      });
    }
  });
  it("are in the middle where they are short", () => {
    const [one, last] = [at.chips.second[0]!, at.chips.second.at(-1)!];
    expect(Math.abs(one.x + last.x + last.width - 600)).toBeLessThan(2);
  });
  it("go on in another line where there is no room", () => {
    const narrow = ribbonLayout(account, pairs, 90, ruler);
    expect(new Set(narrow.chips.first.map(({ y }) => y)).size).toBeGreaterThan(1);
    expect(Math.max(...narrow.chips.first.map(({ x, width }) => x + width))).toBeLessThanOrEqual(90);
  });
  it("have larger letters in a large room", () => {
    expect(ribbonLayout(account, pairs, 1600, ruler).size).toBeGreaterThan(at.size);
  });
});

describe("ribbons", () => {
  const at = ribbonLayout(account, pairs, 600, ruler);
  const ribbons = ribbonsOf(at, pairs);

  it("are as wide as their cells are large", () => {
    const [strong, weaker] = ribbons;
    expect(strong!.width / weaker!.width).toBeCloseTo(strong!.value / weaker!.value, 6);
  });
  it("lie side by side at a token and within it", () => {
    const chip = at.chips.second[0]!;
    const own = ribbons.filter(({ second }) => second === 0).sort((one, other) => one.to - other.to);
    own.slice(1).forEach(({ to, width }, index) => {
      expect(to - own[index]!.to).toBeCloseTo((width + own[index]!.width) / 2, 6);
    });
    expect(own[0]!.to - own[0]!.width / 2).toBeGreaterThanOrEqual(chip.x - 1);
    expect(own.at(-1)!.to + own.at(-1)!.width / 2).toBeLessThanOrEqual(chip.x + chip.width + 1);
  });
  it("have the colour of their sign, and a name", () => {
    const marks = ribbonMarks(at, account, pairs, { dark: false, focus: null });
    const fills = new Map(
      marks.map((mark) => [mark.kind === "path" ? mark.title : "", "fill" in mark ? mark.fill : ""]),
    );
    const lowering = pairs.find(({ value }) => value < 0)!;
    expect(fills.get(pairTitle(account, lowering))).not.toBe(fills.get(pairTitle(account, pairs[0]!)));
    expect(pairTitle(account, pairs[0]!)).toContain("+0.375");
  });
  it("fade where others are in focus", () => {
    const marks = ribbonMarks(at, account, pairs, { dark: false, focus: ({ first }) => first === 1 });
    const opacity = (first: number): number[] =>
      marks.flatMap((mark) => (mark.kind === "path" && mark.data?.first === first ? [mark.opacity!] : []));
    expect(Math.min(...opacity(1))).toBeGreaterThan(Math.max(...opacity(0), ...opacity(2)));
  });
});
