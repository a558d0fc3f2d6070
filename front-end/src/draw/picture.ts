/** An image as a canvas, to be drawn at any size. */
import type { Picture } from "../model/analysis";
import { h } from "./dom";

const made = new WeakMap<Picture, HTMLCanvasElement>();

export function picture(shown: Picture): HTMLCanvasElement {
  let canvas = made.get(shown);
  if (!canvas) {
    const { width, height, rgb } = shown;
    canvas = h("canvas", { width, height });
    const image = new ImageData(width, height);
    for (let pixel = 0; pixel < width * height; pixel++) {
      for (let channel = 0; channel < 3; channel++) image.data[4 * pixel + channel] = rgb[3 * pixel + channel]!;
      image.data[4 * pixel + 3] = 255;
    }
    canvas.getContext("2d")!.putImageData(image, 0, 0);
    made.set(shown, canvas);
  }
  return canvas;
}
