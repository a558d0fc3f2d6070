/** A button with the error of a result; behind it, how the result was computed. */
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
  const description = "Parts and bias add up to the model\u2019s output. Relative error of the worst query, by layer:";
  const table = h("div", { class: "scroller" }, h("table", {}, h("tbody", {}, ...errors)));
  const title =
    "Completeness: relative error of the sum of all parts against the model\u2019s output. Click for model facts.";
  const precision = h("p", { class: "precision" }, precisionShown(analysis.precision));
  return factsPopover(exactTo(analysis.worstError), analysis.facts, [h("p", {}, description), table, precision], title);
}

/** How precise the numbers of a page are. */
export function precisionShown(error: number): string {
  if (error === 0) return "Values have full float32 precision.";
  return `Shares are rounded to within ${format.tolerance(error)} of their value; 0 stands for less than a millionth of the largest value in the row.`;
}

/** How exact a sum is, relative to what it should be. */
export function exactTo(error: number): string {
  return `exact to ${format.bound(error)}`;
}

/** How exact a result is; behind it the proof, and all that is known of how the result came about. */
export function factsPopover(title: string, facts: Facts, proof: HTMLElement[], hint: string): HTMLElement {
  const rows = Object.entries(facts)
    .filter(([name, value]) => !HIDDEN.has(name) && value !== "")
    .flatMap(([name, value]) => [h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, bdi(String(value)))]);
  const corner = popover(title, "facts", ...proof, h("dl", {}, ...rows));
  corner.querySelector("summary")!.title = hint;
  return corner;
}
