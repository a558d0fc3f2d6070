/** The corner that says how right the result is, and where it came from. */
import { popover } from "../draw/controls";
import { bdi, h } from "../draw/dom";
import type { Analysis } from "../model/analysis";
import * as format from "../model/format";
import type { Facts } from "../model/payload";

const HIDDEN = new Set(["text", "schema_version"]);

export function factsCorner(analysis: Analysis): HTMLElement {
  const errors = analysis.layers.map((layer, index) =>
    h("tr", {}, h("th", { scope: "row" }, `layer ${layer}`), h("td", {}, format.error(analysis.completeness[index]!))),
  );
  const told =
    "Parts and bias add up to the model\u2019s own output. Relative error of the worst query, layer by layer:";
  const table = h("div", { class: "scroller" }, h("table", {}, h("tbody", {}, ...errors)));
  const title = "Completeness: how exactly the parts add up to the model\u2019s own output. Click for model facts.";
  const precision = h("p", { class: "precision" }, precisionShown(analysis.precision));
  return factsPopover(analysis.worstError, analysis.facts, [h("p", {}, told), table, precision], title);
}

/** How precise the numbers of a page are. */
export function precisionShown(error: number): string {
  if (error === 0) return "The numbers are as analysed, in float32.";
  return `Shares are as analysed within ${format.tolerance(error)} of themselves; 0 is less than a millionth of the largest in its row.`;
}

/** The largest error of a result; behind it the proof, and all that is known of how the result came about. */
export function factsPopover(worst: number, facts: Facts, proof: HTMLElement[], title: string): HTMLElement {
  const rows = Object.entries(facts)
    .filter(([name, value]) => !HIDDEN.has(name) && value !== "")
    .flatMap(([name, value]) => [h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, bdi(String(value)))]);
  const corner = popover(`error ${format.error(worst)}`, "facts", ...proof, h("dl", {}, ...rows));
  corner.querySelector("summary")!.title = title;
  return corner;
}
