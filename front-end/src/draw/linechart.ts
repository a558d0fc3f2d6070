/** A small line chart over a few named places, such as the scopes of a chain or the layers, as marks. */
import { max, min } from "d3-array";
import { scaleLinear, scalePoint } from "d3-scale";
import type { Ink } from "./ink";
import { type Mark, textWidth } from "./marks";

const MARGIN = { top: 10, right: 12, bottom: 22, left: 38 };
const MOST_NAMES = 14;
const TEXT_SIZE = 10.5;
const MANY_POINTS = 16;

export interface Line {
  /** Whether this is the line to look at, or one to compare it with. */
  main: boolean;
  points: [string, number][];
}

export interface LineChart {
  width: number;
  height: number;
  names: string[];
  lines: Line[];
  /** The upper end of the vertical axis. Default: the largest value. */
  most?: number;
  tick(value: number): string;
  short(name: string): string;
  /** The name of the place to mark. */
  current: string;
  ink: Ink;
}

type Across = (name: string) => number | undefined;
type Up = ReturnType<typeof scaleLinear<number, number>>;

export function lineChartMarks(chart: LineChart): Mark[] {
  const { width, height, names, lines, current, ink } = chart;
  const values = lines.flatMap((line) => line.points.map(([, value]) => value)).filter((value) => !Number.isNaN(value));
  const x = scalePoint(names, [MARGIN.left, width - MARGIN.right]).padding(0.2);
  const domain = [Math.min(0, min(values) ?? 0), (chart.most ?? max(values)) || 1];
  const y = scaleLinear(domain, [height - MARGIN.bottom, MARGIN.top]);
  const at = x(current);
  const marker: Mark[] =
    at === undefined
      ? []
      : [{ kind: "line", from: [at, MARGIN.top], to: [at, height - MARGIN.bottom], stroke: ink.accent, dash: [2, 3] }];
  return [
    ...gridMarks(chart, y),
    ...nameMarks(chart, x),
    ...marker,
    ...lines.flatMap((line) => lineMarks(line, x, y, ink)),
  ];
}

function lineMarks({ main, points: all }: Line, x: Across, y: Up, ink: Ink): Mark[] {
  const points = all.filter(([, value]) => !Number.isNaN(value)).map(([name, value]) => [x(name)!, y(value)] as const);
  const d = points.map((point, index) => `${index === 0 ? "M" : "L"}${point.join()}`).join("");
  if (!main) return [{ kind: "path", d, stroke: ink.faint, lineWidth: 1.5, dash: [4, 3] }];
  const radius = points.length > MANY_POINTS ? 1.8 : 2.8;
  return [
    { kind: "path", d, stroke: ink.accent, lineWidth: 2 },
    ...points.map(([cx, cy]): Mark => ({ kind: "circle", x: cx, y: cy, radius, fill: ink.accent })),
  ];
}

function gridMarks({ width, tick, ink }: LineChart, y: Up): Mark[] {
  const text = { x: MARGIN.left - 6, size: TEXT_SIZE, fill: ink.muted, anchor: "end", baseline: "middle" } as const;
  return y.ticks(3).flatMap((value): Mark[] => {
    // In the middle of a pixel a thin line is sharp.
    const at = Math.round(y(value)) + 0.5;
    return [
      { kind: "line", from: [MARGIN.left, at], to: [width - MARGIN.right, at], stroke: ink.line },
      { kind: "text", ...text, y: at, text: tick(value) },
    ];
  });
}

function nameMarks({ width, height, names, short, ink }: LineChart, x: Across): Mark[] {
  const step = Math.ceil(names.length / MOST_NAMES);
  const marks = names
    .filter((_, index) => index % step === 0)
    .map((name): Mark => {
      const text = short(name);
      // A centred name at the end would be cut off.
      const most = width - textWidth(text, { size: TEXT_SIZE }) / 2;
      const place = { x: Math.min(x(name)!, most), y: height - MARGIN.bottom + 15 };
      return { kind: "text", ...place, text, size: TEXT_SIZE, fill: ink.muted, anchor: "middle" };
    });
  return [{ kind: "group", class: "names", marks }];
}
