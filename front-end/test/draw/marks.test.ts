import { describe, expect, it } from "vitest";
import { layoutAt } from "../../src/draw/geometry";
import { legendMarks } from "../../src/draw/legend";
import { cursorMarks } from "../../src/draw/mapmarks";
import { type Mark, paintMarks, type RectMark } from "../../src/draw/marks";

/** A canvas context that records what is drawn: rectangles where they end up, with their colour and opacity. */
class Recorder {
  readonly drawn: [string, number, number, number][] = [];
  fillStyle = "";
  strokeStyle = "";
  globalAlpha = 1;
  private origin = { x: 0, y: 0 };
  private readonly saved: { x: number; y: number }[] = [];

  save(): void {
    this.saved.push({ ...this.origin });
  }

  restore(): void {
    this.origin = this.saved.pop()!;
  }

  translate(x: number, y: number): void {
    this.origin = { x: this.origin.x + x, y: this.origin.y + y };
  }

  setLineDash(): void {}

  fillRect(x: number, y: number): void {
    this.drawn.push([this.fillStyle, this.origin.x + x, this.origin.y + y, this.globalAlpha]);
  }

  strokeRect(x: number, y: number): void {
    this.drawn.push([this.strokeStyle, this.origin.x + x, this.origin.y + y, this.globalAlpha]);
  }
}

function painted(marks: Mark[]): Recorder["drawn"] {
  const recorder = new Recorder();
  paintMarks(recorder as unknown as CanvasRenderingContext2D, marks);
  return recorder.drawn;
}

const rect = (parts: Partial<RectMark>): RectMark => ({ kind: "rect", x: 1, y: 2, width: 3, height: 4, ...parts });

describe("marks on a canvas", () => {
  it("are drawn from the origin of their groups, which ends with the group", () => {
    const inner: Mark = { kind: "group", x: 10, y: 20, marks: [rect({ fill: "red" })] };
    const outer: Mark = { kind: "group", x: 100, marks: [inner, rect({ fill: "green" })] };
    expect(painted([outer, rect({ fill: "blue" })])).toEqual([
      ["red", 111, 22, 1],
      ["green", 101, 2, 1],
      ["blue", 1, 2, 1],
    ]);
  });

  it("have an opacity of their own", () => {
    expect(painted([rect({ fill: "red", opacity: 0.5 }), rect({ stroke: "blue" })])).toEqual([
      ["red", 1, 2, 0.5],
      ["blue", 1, 2, 1],
    ]);
  });
});

describe("the marks of a legend", () => {
  const css = Array.from({ length: 256 }, (_, index) => `colour ${index}`);
  const palette = {
    table: new Uint32Array(256),
    css,
    limit: 1,
    most: 1,
    diverging: false,
    scale: { kind: "root" },
  } as const;
  const rects = legendMarks(palette, "none", "grey").filter((mark) => mark.kind === "rect");

  it("cover the bar without seams, from the first colours to the last", () => {
    rects.forEach(({ x, width }, index) => {
      expect(Number.isInteger(x)).toBe(true);
      expect(x + width).toBe(rects[index + 1]?.x ?? 220);
    });
    expect(rects[0]!.fill).toBe("colour 1");
    expect(rects.at(-1)!.fill).toBe("colour 254");
  });

  it("have an arrow only where values go beyond the last colour", () => {
    const arrows = (parts: object): number =>
      legendMarks({ ...palette, ...parts }, "none", "grey").filter(({ kind }) => kind === "path").length;
    expect([arrows({}), arrows({ most: 2 }), arrows({ most: 2, diverging: true })]).toEqual([0, 1, 2]);
  });
});

it("a figure has cells of the size it was given, all of them in view", () => {
  const room = { rows: 5, columns: 7, rowLabels: 40, columnLabels: 60, side: 48, header: 18 };
  for (const cell of [4, 10, 18]) {
    const at = layoutAt(cell, room);
    expect([at.plotWidth, at.plotHeight]).toEqual([7 * cell, 5 * cell]);
    expect(at.width).toBeGreaterThanOrEqual(at.left + at.plotWidth + room.side);
    expect(at.height).toBeGreaterThan(at.top + at.plotHeight);
    expect(at.top).toBeGreaterThan(room.header);
  }
});

it("the cursor frames the selected row and cell, and what is hovered", () => {
  const at = layoutAt(10, { rows: 5, columns: 7, rowLabels: 40, columnLabels: 60, side: 0, header: 0 });
  const ink = { accent: "accent", text: "text" } as Parameters<typeof cursorMarks>[3];
  const count = (row: number, column: number, hovered: { row: number; column: number } | null): number => {
    const [group] = cursorMarks(at, { row, column }, hovered, ink);
    return group?.kind === "group" ? group.marks.length : -1;
  };
  expect(count(-1, -1, null)).toBe(0);
  expect(count(2, -1, null)).toBe(1);
  expect(count(2, 3, null)).toBe(2);
  expect(count(2, 3, { row: 1, column: -1 })).toBe(3);
  expect(count(2, 3, { row: 1, column: 4 })).toBe(5);
});
