/**
 * What drawings are made of: a list of marks, as data. A drawing computes its marks once, and two small renderers draw
 * the same list, `paintMarks` onto a canvas and `svgOf` as SVG elements, so that an export is what is on the screen.
 */
import { s } from "./dom";

export const FONT = "Inter, 'SF Pro Text', 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

interface Style {
  fill?: string | undefined;
  stroke?: string | undefined;
  lineWidth?: number;
  dash?: number[];
  /** Of both fill and stroke, from 0 to 1. */
  opacity?: number;
  /** For SVG alone: what scripts, tests and the style sheet find an element by, and its tooltip. */
  class?: string;
  data?: Record<string, string | number>;
  title?: string;
}

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface RectMark extends Style, Box {
  kind: "rect";
  radius?: number;
}

export interface LineMark extends Style {
  kind: "line";
  from: readonly [number, number];
  to: readonly [number, number];
}

export interface CircleMark extends Style {
  kind: "circle";
  x: number;
  y: number;
  radius: number;
}

export interface PathMark extends Style {
  kind: "path";
  /** As in the `d` of an SVG path. */
  d: string;
}

export interface TextMark extends Style {
  kind: "text";
  x: number;
  y: number;
  text: string;
  size: number;
  weight?: number;
  anchor?: "start" | "middle" | "end";
  baseline?: "alphabetic" | "top" | "middle" | "bottom";
  /** In radians, around (x, y). */
  angle?: number;
}

export interface BitmapMark extends Box {
  kind: "bitmap";
  bitmap: HTMLCanvasElement;
  /** Whether it is a photograph. Default: its pixels are cells, which are sharp at any size. */
  smooth?: boolean;
}

export interface GroupMark {
  kind: "group";
  marks: readonly Mark[];
  /** Where the origin of its marks is. */
  x?: number;
  y?: number;
  /** Nothing is drawn outside this box. */
  clip?: Box;
  class?: string;
}

export type Mark = RectMark | LineMark | CircleMark | PathMark | TextMark | BitmapMark | GroupMark;

/** Draw marks onto a canvas. */
export function paintMarks(context: CanvasRenderingContext2D, marks: readonly Mark[]): void {
  for (const mark of marks) {
    if (mark.kind === "group") paintGroup(context, mark);
    else if (mark.kind === "bitmap") paintBitmap(context, mark);
    else paint(context, mark);
  }
}

function paintGroup(context: CanvasRenderingContext2D, { marks, x = 0, y = 0, clip }: GroupMark): void {
  context.save();
  context.translate(x, y);
  if (clip) {
    context.beginPath();
    context.rect(clip.x, clip.y, clip.width, clip.height);
    context.clip();
  }
  paintMarks(context, marks);
  context.restore();
}

function paintBitmap(context: CanvasRenderingContext2D, mark: BitmapMark): void {
  const { bitmap, x, y, width, height, smooth = false } = mark;
  context.imageSmoothingEnabled = smooth || (width / bitmap.width) * (window.devicePixelRatio || 1) < 1;
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, x, y, width, height);
}

function paint(context: CanvasRenderingContext2D, mark: Exclude<Mark, GroupMark | BitmapMark>): void {
  const { fill, stroke, lineWidth = 1, opacity = 1, dash = [] } = mark;
  context.globalAlpha = opacity;
  context.setLineDash(dash);
  if (fill !== undefined) context.fillStyle = fill;
  if (stroke !== undefined) context.strokeStyle = stroke;
  context.lineWidth = lineWidth;
  if (mark.kind === "text") paintText(context, mark);
  else if (mark.kind === "rect" && mark.radius === undefined) {
    if (fill !== undefined) context.fillRect(mark.x, mark.y, mark.width, mark.height);
    if (stroke !== undefined) context.strokeRect(mark.x, mark.y, mark.width, mark.height);
  } else {
    const path = outline(mark);
    if (fill !== undefined) context.fill(path);
    if (stroke !== undefined) context.stroke(path);
  }
  context.globalAlpha = 1;
}

function outline(mark: RectMark | LineMark | CircleMark | PathMark): Path2D {
  if (mark.kind === "path") return new Path2D(mark.d);
  const path = new Path2D();
  if (mark.kind === "circle") path.arc(mark.x, mark.y, mark.radius, 0, 2 * Math.PI);
  else if (mark.kind === "rect") path.roundRect(mark.x, mark.y, mark.width, mark.height, mark.radius);
  else {
    path.moveTo(...mark.from);
    path.lineTo(...mark.to);
  }
  return path;
}

const ALIGN = { start: "left", middle: "center", end: "right" } as const;

function paintText(context: CanvasRenderingContext2D, mark: TextMark): void {
  const { x, y, text, anchor = "start", baseline = "alphabetic", angle = 0 } = mark;
  context.font = fontOf(mark);
  context.textAlign = ALIGN[anchor];
  context.textBaseline = baseline;
  if (angle === 0) {
    context.fillText(text, x, y);
    return;
  }
  context.save();
  context.translate(x, y);
  context.rotate(angle);
  context.fillText(text, 0, 0);
  context.restore();
}

export function fontOf({ size, weight }: Pick<TextMark, "size" | "weight">): string {
  return `${weight === undefined ? "" : `${weight} `}${size}px ${FONT}`;
}

let measuring: CanvasRenderingContext2D | null = null;

/** How wide a text is, in pixels. */
export function textWidth(text: string, font: Pick<TextMark, "size" | "weight">): number {
  measuring ??= document.createElement("canvas").getContext("2d")!;
  measuring.font = fontOf(font);
  return measuring.measureText(text).width;
}

/** Bitmaps of more cells are embedded as images, not as rectangles. */
const MOST_RECTANGLES = 16_384;
const BASELINES = { alphabetic: undefined, top: "text-before-edge", middle: "central", bottom: "text-after-edge" };

/** An SVG document of marks. */
export function svgDocument(marks: readonly Mark[], width: number, height: number): SVGSVGElement {
  const viewBox = `0 0 ${width} ${height}`;
  const attributes = { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox, "font-family": FONT };
  return s("svg", attributes, ...svgOf(marks));
}

/** Marks as SVG elements, one for each. */
export function svgOf(marks: readonly Mark[]): SVGElement[] {
  return marks.map(elementOf);
}

function elementOf(mark: Mark): SVGElement {
  if (mark.kind === "group") return groupOf(mark);
  if (mark.kind === "bitmap") return bitmapOf(mark);
  const element = shapeOf(mark);
  for (const [name, value] of Object.entries(mark.data ?? {})) element.dataset[name] = String(value);
  if (mark.title !== undefined) element.append(s("title", {}, mark.title));
  return element;
}

function groupOf({ marks, x = 0, y = 0, clip, class: name }: GroupMark): SVGElement {
  const transform = x === 0 && y === 0 ? undefined : `translate(${x},${y})`;
  if (!clip) return s("g", { class: name, transform }, ...svgOf(marks));
  // An inner document is clipped to its own box.
  const viewBox = `${clip.x} ${clip.y} ${clip.width} ${clip.height}`;
  return s("g", { class: name, transform }, s("svg", { ...clip, viewBox }, ...svgOf(marks)));
}

function shapeOf(mark: Exclude<Mark, GroupMark | BitmapMark>): SVGElement {
  const { fill, stroke, lineWidth, dash, opacity } = mark;
  const style = {
    class: mark.class,
    fill: fill ?? "none",
    "fill-opacity": fill === undefined ? undefined : opacity,
    stroke,
    "stroke-width": stroke === undefined ? undefined : lineWidth,
    "stroke-opacity": stroke === undefined ? undefined : opacity,
    "stroke-dasharray": dash?.join(" "),
  };
  switch (mark.kind) {
    case "rect": {
      const { x, y, width, height, radius } = mark;
      return s("rect", { ...style, x, y, width, height, rx: radius });
    }
    case "line":
      return s("line", { ...style, x1: mark.from[0], y1: mark.from[1], x2: mark.to[0], y2: mark.to[1] });
    case "circle":
      return s("circle", { ...style, cx: mark.x, cy: mark.y, r: mark.radius });
    case "path":
      return s("path", { ...style, d: mark.d });
    case "text":
      return textOf(mark, style);
  }
}

function textOf(mark: TextMark, style: Record<string, string | number | undefined>): SVGElement {
  const { x, y, text, size, weight, anchor, baseline = "alphabetic", angle = 0 } = mark;
  const place = angle === 0 ? { x, y } : { transform: `translate(${x},${y}) rotate(${(angle * 180) / Math.PI})` };
  return s(
    "text",
    {
      ...style,
      ...place,
      "font-size": size,
      "font-weight": weight,
      "text-anchor": anchor,
      "dominant-baseline": BASELINES[baseline],
    },
    text,
  );
}

function bitmapOf({ bitmap, x, y, width, height, smooth = false }: BitmapMark): SVGElement {
  if (smooth || bitmap.width * bitmap.height > MOST_RECTANGLES) {
    const href = bitmap.toDataURL("image/png");
    const rendering = smooth ? "auto" : "pixelated";
    const box = { x, y, width, height, preserveAspectRatio: "none", "image-rendering": rendering };
    return s("image", { href, ...box });
  }
  const [across, down] = [width / bitmap.width, height / bitmap.height];
  const { data } = bitmap.getContext("2d")!.getImageData(0, 0, bitmap.width, bitmap.height);
  const group = s("g", { "shape-rendering": "crispEdges" });
  for (let cell = 0; cell < bitmap.width * bitmap.height; cell++) {
    if (data[4 * cell + 3] === 0) continue;
    const [row, column] = [Math.floor(cell / bitmap.width), cell % bitmap.width];
    const fill = `#${[...data.subarray(4 * cell, 4 * cell + 3)].map((part) => part.toString(16).padStart(2, "0")).join("")}`;
    group.append(s("rect", { x: x + column * across, y: y + row * down, width: across, height: down, fill }));
  }
  return group;
}
