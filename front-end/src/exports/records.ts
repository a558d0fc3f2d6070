/** The current view as data: CSV in long form and JSON, with what is needed to read them later. */
import type { AnswerView } from "../draw/answerview";
import type { FlowView } from "../draw/flowview";
import type { View } from "../draw/view";
import { wordTexts } from "../model/answer";
import { tolerance } from "../model/format";
import type { Account, Line, SideName } from "../model/similarity";

function quoted(text: string): string {
  return /[",\r\n]/u.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const COLUMNS =
  "model,method,quantity,layer,scope,minus,head,normalised,query,query_token,key,key_group,key_token,value";

/** One line per query and key that exists. */
export function csvOf(views: View[]): string {
  const lines = [COLUMNS];
  for (const view of views) {
    const { matrix, queries, keys, lens, state } = view;
    const { analysis } = lens;
    const head = analysis.hasHeads(state.scope) ? state.head : 0;
    const source = [analysis.model, analysis.method, analysis.scope(state.scope)?.quantity ?? ""].map(quoted);
    const start = [...source, state.layer, state.scope, state.base, head || "", state.norm].join();
    matrix.values.forEach((value, at) => {
      if (Number.isNaN(value)) return;
      const [row, column] = [Math.floor(at / matrix.columns), at % matrix.columns];
      const query = analysis.queries.position[queries.members[row]![0]!];
      const key = analysis.keys.position[keys.members[column]![0]!];
      const [queryToken, keyToken] = [quoted(queries.labels[row]!), quoted(keys.labels[column]!)];
      lines.push([start, query, queryToken, key, keys.group[column], keyToken, value].join());
    });
  }
  return `${lines.join("\r\n")}\r\n`;
}

export function jsonOf(views: View[]): string {
  return `${JSON.stringify({ format: "normscope-view", version: 1, views: views.map(described) }, null, 1)}\n`;
}

function described(view: View): Record<string, unknown> {
  const { matrix, queries, keys, lens, state } = view;
  const { analysis } = lens;
  return {
    facts: analysis.facts,
    method: analysis.method,
    quantity: analysis.scope(state.scope)?.quantity ?? null,
    completeness: analysis.completeness[analysis.layers.indexOf(state.layer)],
    layer: state.layer,
    scope: state.scope,
    minus: state.base || null,
    head: (analysis.hasHeads(state.scope) && state.head) || null,
    normalised: state.norm,
    units: state.units,
    own_tokens: state.own,
    own_shares: nullable(view.ownShares),
    precision: isExact(view) ? "float32" : `within ${tolerance(analysis.precision)} of every share`,
    queries: queries.labels,
    keys: keys.labels,
    key_groups: keys.group,
    map: Array.from({ length: matrix.rows }, (_, row) =>
      nullable(matrix.values.subarray(row * matrix.columns, (row + 1) * matrix.columns)),
    ),
    mixing_ratio_by_token: nullable(analysis.ratios(state.scope, state.layer)),
  };
}

/** JSON has no NaN. */
function nullable(values: Float32Array): (number | null)[] {
  return Array.from(values, (value) => (Number.isNaN(value) ? null : value));
}

export function isExact({ lens, state }: View): boolean {
  const head = lens.analysis.hasHeads(state.scope) ? state.head : 0;
  const baseHead = lens.analysis.hasHeads(state.base) ? state.head : 0;
  return (
    lens.analysis.isExact(state.scope, state.layer, head) &&
    (state.base === "" || lens.analysis.isExact(state.base, state.layer, baseHead))
  );
}

const FLOW_COLUMNS = "model,method,target,layer,from,from_token,to,to_token,value";

/** One line per edge that is drawn. */
export function flowCsv({ explanation, target, flow, stack }: FlowView): string {
  const start = [explanation.model, explanation.method, target.name].map(quoted).join();
  const place = (row: number): string => {
    const token = flow.rows.members[row]![0]!;
    return [stack.keys.position[token], quoted(flow.rows.labels[row]!)].join();
  };
  const lines = flow.edges.map(({ layer, from, to, value }) => [start, layer, place(from), place(to), value].join());
  return `${[FLOW_COLUMNS, ...lines].join("\r\n")}\r\n`;
}

export function flowJson({ explanation, target, flow, state }: FlowView): string {
  const content = {
    format: "normscope-flow",
    version: 1,
    facts: explanation.facts,
    method: explanation.method,
    quantity: explanation.quantity,
    conservation_error: explanation.error,
    target,
    units: state.units,
    tokens: flow.rows.labels,
    groups: flow.rows.group,
    share: state.share / 100,
    carried: flow.carried,
    relevance: flow.relevance.map((values) => [...values]),
    bias: flow.bias.map((values) => [...values]),
    feed_forward: flow.feedForward.map((values) => [...values]),
    heads: flow.heads.map((heads) => heads.map((values) => [...values])),
    edges: flow.edges,
    rest: { into: flow.rest.into.map((values) => [...values]), out: flow.rest.out.map((values) => [...values]) },
  };
  return `${JSON.stringify(content, null, 1)}\n`;
}

const SIMILARITY_COLUMNS = "model,measure,first,first_token,second,second_token,value";

/** One line per pair of units; lines without a second (or first) token are what one does with the other text's bias. */
export function similarityCsv({ similarity, lines: { first, second }, table }: Account): string {
  const start = [String(similarity.facts.model ?? ""), similarity.measure].map(quoted).join();
  const place = (side: SideName, unit: number): string => {
    const { units } = side === "first" ? first : second;
    const { position } = similarity.sides[side].tokens;
    return [position[units.members[unit]![0]!], quoted(units.labels[unit]!)].join();
  };
  const lines = [SIMILARITY_COLUMNS];
  table?.values.forEach((value, at) => {
    const [row, column] = [Math.floor(at / table.columns), at % table.columns];
    lines.push([start, place("first", row), place("second", column), value].join());
  });
  first.margins.forEach((value, unit) => {
    lines.push([start, place("first", unit), ",", value].join());
  });
  second.margins.forEach((value, unit) => {
    lines.push([start, ",", place("second", unit), value].join());
  });
  lines.push([start, ",", ",", similarity.constant].join());
  return `${lines.join("\r\n")}\r\n`;
}

export function similarityJson({ similarity, lines: { first, second }, table }: Account): string {
  const { facts, measure, value, error, constant } = similarity;
  const side = ({ units, shares, margins }: Line): Record<string, unknown> => ({
    tokens: units.labels,
    shares: [...shares],
    margins: [...margins],
  });
  const rows =
    table &&
    Array.from({ length: table.rows }, (_, row) => [
      ...table.values.subarray(row * table.columns, (row + 1) * table.columns),
    ]);
  const content = {
    format: "normscope-similarity",
    version: 1,
    facts,
    measure,
    value,
    completeness_error: error,
    first: side(first),
    second: side(second),
    table: rows,
    constant,
  };
  return `${JSON.stringify(content, null, 1)}\n`;
}

function rowsOf({ rows }: AnswerView["view"]): Float32Array[] | null {
  return rows && Array.from({ length: rows.words }, (_, word) => rows.of(word));
}

/** One line per item and word of the answer, and first those of the whole answer, whose word is empty. */
export function answerCsv({ answer, view }: AnswerView): string {
  const words = wordTexts(answer);
  const block = (word: string, shares: ArrayLike<number>): string[] =>
    answer.items.map(({ text, source, ranked }, item) =>
      [quoted(word), ranked ? answer.unit : "left out", quoted(text), quoted(source), shares[item]].join(),
    );
  const rows = rowsOf(view)?.flatMap((shares, word) => block(words[word]!, shares)) ?? [];
  return `${["word,kind,text,source,share", ...block("", view.total), ...rows].join("\r\n")}\r\n`;
}

export function answerJson({ answer, view }: AnswerView): string {
  const { facts, unit, value, error, items } = answer;
  const content = {
    format: "normscope-answer",
    version: 1,
    facts,
    unit,
    value,
    completeness_error: error,
    view: view.name,
    items,
    shares: view.total,
    words: wordTexts(answer),
    rows: rowsOf(view)?.map((row) => [...row]) ?? null,
  };
  return `${JSON.stringify(content, null, 1)}\n`;
}
