/** The current view as data: CSV in long form and JSON, with what is needed to read them later. */
import type { View } from "../draw/view";

function quoted(text: string): string {
  return /[",\r\n]/u.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const COLUMNS = [
  "model",
  "layer",
  "scope",
  "minus",
  "head",
  "normalised",
  "query",
  "query_token",
  "key",
  "key_group",
  "key_token",
  "value",
];

/** One line per query and key that exists. */
export function csvOf(views: View[]): string {
  const lines = [COLUMNS.join()];
  for (const view of views) {
    const { matrix, queries, keys, lens, state } = view;
    const head = lens.analysis.hasHeads(state.scope) ? state.head : 0;
    const start = [quoted(lens.analysis.model), state.layer, state.scope, state.base, head || "", state.norm].join();
    matrix.values.forEach((value, at) => {
      if (Number.isNaN(value)) return;
      const [row, column] = [Math.floor(at / matrix.columns), at % matrix.columns];
      const query = lens.analysis.queries.position[queries.members[row]![0]!];
      const key = lens.analysis.keys.position[keys.members[column]![0]!];
      lines.push(
        [
          start,
          query,
          quoted(queries.labels[row]!),
          key,
          keys.group[column],
          quoted(keys.labels[column]!),
          value,
        ].join(),
      );
    });
  }
  return `${lines.join("\r\n")}\r\n`;
}

export function jsonOf(views: View[]): string {
  const described = views.map((view) => {
    const { matrix, queries, keys, lens, state } = view;
    const rows = Array.from({ length: matrix.rows }, (_, row) =>
      Array.from(matrix.values.subarray(row * matrix.columns, (row + 1) * matrix.columns), (value) =>
        Number.isNaN(value) ? null : value,
      ),
    );
    const ratios = Array.from(lens.analysis.ratios(state.scope, state.layer), (value) =>
      Number.isNaN(value) ? null : value,
    );
    return {
      facts: lens.analysis.facts,
      completeness: lens.analysis.completeness[lens.analysis.layers.indexOf(state.layer)],
      layer: state.layer,
      scope: state.scope,
      minus: state.base || null,
      head: (lens.analysis.hasHeads(state.scope) && state.head) || null,
      normalised: state.norm,
      units: state.units,
      precision: isExact(view) ? "float32" : "quantised for display",
      queries: queries.labels,
      keys: keys.labels,
      key_groups: keys.group,
      map: rows,
      mixing_ratio_by_token: ratios,
    };
  });
  return `${JSON.stringify({ format: "normscope-view", version: 1, views: described }, null, 1)}\n`;
}

export function isExact({ lens, state }: View): boolean {
  const head = lens.analysis.hasHeads(state.scope) ? state.head : 0;
  const baseHead = lens.analysis.hasHeads(state.base) ? state.head : 0;
  return (
    lens.analysis.isExact(state.scope, state.layer, head) &&
    (state.base === "" || lens.analysis.isExact(state.base, state.layer, baseHead))
  );
}
