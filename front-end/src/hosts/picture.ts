/** A field for the file of an image, as the server takes it. */
import { h } from "../draw/dom";

export class Picture {
  readonly element: HTMLInputElement;

  constructor(name: string, changed: () => void) {
    this.element = h("input", { type: "file", accept: "image/*", "aria-label": name });
    this.element.addEventListener("change", changed);
  }

  /** Whether an image is chosen, of a model that takes one. */
  get chosen(): boolean {
    return !this.element.hidden && (this.element.files?.length ?? 0) > 0;
  }

  /** The image that is chosen, as base64. */
  async read(): Promise<string | null> {
    const file = this.element.files?.[0];
    if (!this.chosen || !file) return null;
    const bytes = new Uint8Array(await file.arrayBuffer());
    let text = "";
    for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
    return btoa(text);
  }

  clear(): void {
    this.element.value = "";
  }
}
