/** The export menu: the current view as SVG, PNG, CSV or JSON, at full precision where that can still be had. */
import { popover } from "../draw/controls";
import { h } from "../draw/dom";
import { pngOf, svgText } from "../exports/figure";
import type { Exportable } from "../section";
import { Panel } from "./panel";

export class Exports extends Panel<unknown> {
  readonly element: HTMLDetailsElement;
  private readonly note = h("p", { class: "note", role: "status" });

  constructor(
    linkable: boolean,
    private readonly exportable: () => Exportable,
  ) {
    super();
    const button = (name: string, kind: string, make: () => Promise<Blob> | Blob): HTMLElement =>
      h("button", { type: "button", "data-export": kind, click: () => void this.save(kind, make) }, name);
    this.element = popover(
      "Export",
      "exports",
      h("span", { class: "hint" }, "this view as a picture"),
      h(
        "div",
        { class: "row" },
        button("SVG", "svg", () => new Blob([svgText(exportable().figure())], { type: "image/svg+xml" })),
        button("PNG", "png", () => pngOf(exportable().figure())),
      ),
      h("span", { class: "hint" }, "this view as data"),
      h(
        "div",
        { class: "row" },
        button("CSV", "csv", async () => new Blob([await exportable().csv()], { type: "text/csv" })),
        button("JSON", "json", async () => new Blob([await exportable().json()], { type: "application/json" })),
      ),
      h(
        "div",
        { class: "row", hidden: !linkable },
        h(
          "button",
          { type: "button", "data-export": "link", click: () => void this.copyLink() },
          "Copy link to this view",
        ),
      ),
      this.note,
    );
  }

  update(): void {
    this.note.textContent = this.exportable().note();
  }

  private async save(kind: string, make: () => Promise<Blob> | Blob): Promise<void> {
    try {
      const blob = await make();
      const link = h("a", { href: URL.createObjectURL(blob), download: `${this.exportable().name()}.${kind}` });
      this.element.append(link);
      link.click();
      link.remove();
      const timer = window.setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
      this.lifetime.onEnd(() => {
        window.clearTimeout(timer);
        URL.revokeObjectURL(link.href);
      });
    } catch (error) {
      this.note.textContent = `The export failed: ${error instanceof Error ? error.message : String(error)}`;
    }
  }

  private async copyLink(): Promise<void> {
    try {
      await navigator.clipboard.writeText(window.location.href);
      this.note.textContent = "Link copied.";
    } catch {
      this.note.textContent = "The link could not be copied. Copy it from the address bar.";
    }
  }
}
