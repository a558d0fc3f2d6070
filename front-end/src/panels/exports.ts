/** The export menu: the current view as SVG, PNG, CSV or JSON, at full precision where that can still be had. */
import { popover } from "../draw/controls";
import { h } from "../draw/dom";
import type { View } from "../draw/view";
import { beside, figure, pngOf, svgText } from "../exports/figure";
import { csvOf, isExact, jsonOf } from "../exports/records";
import type { Host } from "../hosts/host";
import type { Pane } from "../model/pane";
import type { State } from "../model/state";
import { ElementPanel } from "./panel";

export class Exports extends ElementPanel<State> {
  readonly element: HTMLDetailsElement;
  private readonly note = h("p", { class: "note", role: "status" });

  constructor(
    private readonly panes: Pane[],
    private readonly host: Host,
    private readonly views: () => View[],
    private readonly redraw: () => void,
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
        button("SVG", "svg", () => new Blob([svgText(this.figure())], { type: "image/svg+xml" })),
        button("PNG", "png", () => pngOf(this.figure())),
      ),
      h("span", { class: "hint" }, "this view as data"),
      h(
        "div",
        { class: "row" },
        button("CSV", "csv", async () => new Blob([csvOf(await this.exact())], { type: "text/csv" })),
        button("JSON", "json", async () => new Blob([jsonOf(await this.exact())], { type: "application/json" })),
      ),
      h(
        "div",
        { class: "row", hidden: !host.linkable },
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
    const exact = this.host.exact !== undefined || this.views().every(isExact);
    this.note.textContent = exact
      ? "Data is exported as float32."
      : "Data is exported as shown: quantised for display. Make the page with full precision for float32.";
  }

  private figure(): ReturnType<typeof figure> {
    return beside(this.views().map(figure));
  }

  /** The views, once the values they show are there at full precision (if anyone can give them). */
  private async exact(): Promise<View[]> {
    const { exact } = this.host;
    if (!exact) return this.views();
    for (const [index, view] of this.views().entries()) {
      const { state, lens } = view;
      for (const scope of state.base === "" ? [state.scope] : [state.scope, state.base]) {
        const head = lens.analysis.hasHeads(scope) ? state.head : 0;
        if (lens.analysis.isExact(scope, state.layer, head)) continue;
        const encoder = this.panes[index]!.analysis.encoder === lens.analysis;
        const request = { analysis: index, encoder, scope, layer: state.layer, head };
        lens.analysis.setExact(scope, state.layer, head, await exact.call(this.host, request));
      }
      lens.forget();
    }
    this.redraw();
    return this.views();
  }

  private async save(kind: string, make: () => Promise<Blob> | Blob): Promise<void> {
    try {
      const blob = await make();
      const { state } = this.views()[0]!;
      const name = ["normscope", `layer${state.layer}`, state.scope, state.base && `minus-${state.base}`]
        .filter(Boolean)
        .join("-");
      const link = h("a", { href: URL.createObjectURL(blob), download: `${name}.${kind}` });
      this.element.append(link);
      link.click();
      link.remove();
      const timer = window.setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
      this.life.atEnd(() => {
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
      this.note.textContent = "The link is in the clipboard.";
    } catch {
      this.note.textContent = "The address bar has the link to this view.";
    }
  }
}
