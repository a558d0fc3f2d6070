/** The record of views: a new one is a module with a panel, and a line here. The toolbar and the address follow from it. */
import type { Analysis } from "../model/analysis";
import { Bars } from "./bars";
import { ChainChart } from "./chain";
import { Difference } from "./difference";
import { HeadsPanel } from "./heads";
import { MapPanel } from "./map";
import { MixingChart } from "./mixing";
import type { Context, MainPanel, Panel } from "./panel";
import { Patches } from "./patches";
import { Ribbon } from "./ribbon";
import { Scatter } from "./scatter";
import { Table } from "./table";

interface Entry<Kind extends Panel> {
  label: string;
  make(context: Context): Kind;
  /** Whether an analysis has what this shows. Default: every analysis has it. */
  shows?(analysis: Analysis, pane: PaneIndex): boolean;
}

/** The index of an analysis on the page, and the number of analyses. */
export interface PaneIndex {
  index: number;
  count: number;
}

/** The views that fill the card of an analysis, one at a time, by the names that the address has. The first is the default. */
export const VIEWS: Record<string, Entry<MainPanel>> = {
  map: { label: "Map", make: (context) => new MapPanel(context) },
  heads: {
    label: "Heads",
    make: (context) => new HeadsPanel(context),
    // Where they were not computed, the view says how to get them.
    shows: (analysis) =>
      [analysis, analysis.projections].some((one) => (one?.heads?.numbers.length ?? 0) > 1) ||
      (analysis.heads === null && analysis.method === "norms" && !analysis.keys.count),
  },
  difference: {
    label: "Difference",
    make: (context) => new Difference(context),
    shows: (_, { index, count }) => count === 2 && index === 0,
  },
  scatter: {
    label: "Scatter",
    make: (context) => new Scatter(context),
    shows: (_, { index, count }) => count === 2 && index === 0,
  },
  table: { label: "Table", make: (context) => new Table(context) },
};

/** The panels next to it, about the row in focus. */
export const DETAILS: Entry<Panel>[] = [
  { label: "Text", make: (context) => new Ribbon(context), shows: (analysis) => analysis.picture === null },
  { label: "Image", make: (context) => new Patches(context), shows: (analysis) => analysis.picture !== null },
  { label: "Row", make: (context) => new Bars(context) },
  { label: "Chain", make: () => new ChainChart() },
  { label: "Mixing ratio", make: (context) => new MixingChart(context) },
];

/** The names of the views that an analysis has. */
export function viewsOf(analysis: Analysis, pane: PaneIndex): string[] {
  return Object.keys(VIEWS).filter((name) => VIEWS[name]?.shows?.(analysis, pane) ?? true);
}

/** The view of that name if an analysis has it, else the default. */
export function viewFor(name: string, analysis: Analysis, pane: PaneIndex): string {
  const names = viewsOf(analysis, pane);
  return names.includes(name) ? name : (names[0] ?? "");
}
