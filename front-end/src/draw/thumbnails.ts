/** Small pictures of maps, drawn one by one when nothing more urgent is to do, so that stepping stays fast. */

import type { Pane } from "../model/pane";
import type { State } from "../model/state";
import { palette } from "./colour";
import { sized } from "./dom";
import { cellsOf } from "./mapmarks";
import { paintMarks } from "./marks";
import { greyedOf } from "./view";

export interface Thumbnail {
  canvas: HTMLCanvasElement;
  pane: Pane;
  size: number;
  /** What to show of a shared state. */
  of(state: State): State;
}

export class Thumbnails {
  private waiting: Thumbnail[] = [];
  private readonly shown = new WeakMap<HTMLCanvasElement, string>();
  private timer = 0;

  constructor(private readonly dark: () => boolean) {}

  /** Bring some thumbnails up to date, soon. */
  update(thumbnails: Thumbnail[], state: State): void {
    const others = this.waiting.filter((one) => !thumbnails.includes(one));
    this.waiting = [...thumbnails, ...others];
    if (this.timer !== 0) window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.work(state), 0);
  }

  /** Draw nothing more. */
  dispose(): void {
    this.waiting = [];
    window.clearTimeout(this.timer);
  }

  private work(state: State): void {
    const end = performance.now() + 12;
    this.timer = 0;
    while (this.waiting.length > 0 && performance.now() < end) this.draw(this.waiting.shift()!, state);
    if (this.waiting.length > 0) this.timer = window.setTimeout(() => this.work(state), 0);
  }

  private draw({ canvas, pane, size, of }: Thumbnail, shared: State): void {
    const state = pane.state(of(shared));
    const dark = this.dark();
    const name = [
      state.own,
      state.scope,
      state.base,
      state.layer,
      state.head,
      state.norm,
      state.units,
      state.special,
    ].join("/");
    const look = [name, state.part, state.colours, state.scale, state.range, dark, window.devicePixelRatio].join("/");
    if (this.shown.get(canvas) === look) return;
    this.shown.set(canvas, look);
    const lens = pane.lens(state);
    const matrix = lens.painted(state);
    const shades = { diverging: lens.signed(state), dark };
    const context = sized(canvas, size, size);
    const scale = size / Math.max(matrix.rows, matrix.columns);
    const bitmap = cellsOf(matrix, palette(state.colours, lens.colouring(state), shades), greyedOf(state, lens, dark));
    const [width, height] = [matrix.columns * scale, matrix.rows * scale];
    paintMarks(context, [{ kind: "bitmap", bitmap, x: (size - width) / 2, y: (size - height) / 2, width, height }]);
  }
}
