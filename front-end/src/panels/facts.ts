/** The corner that says how right the result is, and where it came from. */
import { popover } from "../draw/controls";
import { bdi, h } from "../draw/dom";
import type { Analysis } from "../model/analysis";
import * as format from "../model/format";

const HIDDEN = new Set(["text", "schema_version"]);

export function factsCorner(analysis: Analysis): HTMLElement {
  const worst = analysis.worstError;
  const rows = Object.entries(analysis.facts)
    .filter(([name, value]) => !HIDDEN.has(name) && value !== "")
    .flatMap(([name, value]) => [h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, bdi(String(value)))]);
  const errors = analysis.layers.map((layer, index) =>
    h("tr", {}, h("th", { scope: "row" }, `layer ${layer}`), h("td", {}, format.error(analysis.completeness[index]!))),
  );
  const corner = popover(
    `error ${format.error(worst)}`,
    "facts",
    h(
      "p",
      {},
      "Parts and bias add up to the model\u2019s own output. Relative error of the worst query, layer by layer:",
    ),
    h("div", { class: "scroller" }, h("table", {}, h("tbody", {}, ...errors))),
    h("dl", {}, ...rows),
  );
  corner.querySelector("summary")!.title =
    "Completeness: how exactly the parts add up to the model\u2019s own output. Click for model facts.";
  return corner;
}
