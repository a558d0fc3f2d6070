/** The record of views: a new one is a module with a panel, and a line here. The toolbar and the address follow from it. */
import type { Analysis } from "../model/analysis";
import { Bars } from "./bars";
import { ChainChart } from "./chain";
import { MapPanel } from "./map";
import { MixingChart } from "./mixing";
import type { Context, MainPanel, Panel } from "./panel";
import { Patches } from "./patches";
import { Ribbon } from "./ribbon";
import { Table } from "./table";

interface Entry<Kind extends Panel> {
  label: string;
  make(context: Context): Kind;
  /** Whether an analysis has what this shows; without it, every one has. */
  shows?(analysis: Analysis): boolean;
}

/** The views that fill the card of an analysis, one at a time, by the names that the address has. The first is the default. */
export const VIEWS: Record<string, Entry<MainPanel>> = {
  map: { label: "Map", make: (context) => new MapPanel(context) },
  table: { label: "Table", make: (context) => new Table(context) },
};

/** The panels beside it, about the row in focus. */
export const DETAILS: Entry<Panel>[] = [
  { label: "Text", make: (context) => new Ribbon(context), shows: (analysis) => analysis.picture === null },
  { label: "Image", make: (context) => new Patches(context), shows: (analysis) => analysis.picture !== null },
  { label: "Row", make: (context) => new Bars(context) },
  { label: "Chain", make: () => new ChainChart() },
  { label: "Mixing ratio", make: (context) => new MixingChart(context) },
];

/** The names of the views that an analysis has. */
export function viewsOf(analysis: Analysis): string[] {
  return Object.keys(VIEWS).filter((name) => VIEWS[name]?.shows?.(analysis) ?? true);
}

/** The view of that name if an analysis has it, else the default. */
export function viewFor(name: string, analysis: Analysis): string {
  const names = viewsOf(analysis);
  return names.includes(name) ? name : (names[0] ?? "");
}
