import { describe, expect, it } from "vitest";
import { cellAt, layout, type Room, reveal } from "../../src/draw/geometry";

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
    side: 0,
  };
  it("fits the map into its room, with whole pixels", () => {
    const at = layout(room);
    expect(at.cell).toBe(Math.floor(at.cell));
    expect(at.left + at.plotWidth).toBeLessThanOrEqual(room.width);
    expect(at.top + at.plotHeight).toBeLessThanOrEqual(room.height);
  });
  it("small labels leave more room than large ones", () => {
    const narrow = { ...room, width: 320, rows: 25, columns: 25 };
    const { cell, left, plotWidth } = layout(narrow);
    expect(cell).toBe(10); // at their largest, labels would leave (320 - 60 - 20) / 25 pixels
    expect(left + plotWidth).toBeLessThanOrEqual(narrow.width);
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
