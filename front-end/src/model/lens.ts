/** An analysis seen through a state: the units along its axes and the matrix that a layer and scope give, kept for reuse. */
import house from "../../../src/normscope/plots/palette.json";
import type { Analysis } from "./analysis";
import {
  aggregate,
  type Matrix,
  normalise,
  ownShares,
  type Range,
  rowMaxima,
  subtract,
  typicalRange,
  withoutOwn,
} from "./matrix";
import { type Scale, scaleFor, sizesOf } from "./scale";
import type { State } from "./state";
import { type Units, unitsOf } from "./tokens";

/** How many numbers all kept matrices may have together. */
const MOST_KEPT = 8_000_000;

const SAMPLED_OF_EACH = 256;

/** How large the values of a map are: how far colours reach, and the sizes in order. */
interface Spread extends Range {
  sizes: Float32Array;
}

export type Selection = Pick<State, "layer" | "scope" | "base" | "head" | "norm" | "units" | "special" | "own">;

export class Lens {
  private readonly matrices = new Map<string, Matrix>();
  private readonly spreads = new Map<string, Spread>();
  private readonly units = new Map<string, Units>();
  private readonly owns = new Map<string, Int32Array>();
  private readonly shares = new Map<string, Float32Array>();
  private kept = 0;

  constructor(readonly analysis: Analysis) {}

  queries(state: Selection): Units {
    return this.along("queries", state);
  }

  keys(state: Selection): Units {
    return this.along("keys", state);
  }

  private along(axis: "queries" | "keys", state: Selection): Units {
    const name = `${axis}/${state.units}/${state.special}`;
    let units = this.units.get(name);
    if (!units) {
      units = unitsOf(this.analysis[axis], { kind: state.units, special: state.special });
      this.units.set(name, units);
    }
    return units;
  }

  /** The map that a state shows: aggregated, normalised, and minus another scope if there is one to subtract. */
  matrix(state: Selection): Matrix {
    if (state.base === "") return this.plain(state);
    return this.remember(`${identity(state)}-${state.base}`, () =>
      subtract(this.plain(state), this.plain({ ...state, scope: state.base })),
    );
  }

  private plain(state: Selection): Matrix {
    return this.remember(identity(state), () => {
      const summed = this.summed(state);
      if (state.own !== "out") return normalise(this.withOwn(summed, state), state.norm);
      // What is left of a row with signs may add up to nothing, so that its shares are of the sizes.
      const signed = this.analysis.scope(state.scope)?.signed ?? false;
      return normalise(withoutOwn(summed, this.own(state)), state.norm, signed);
    });
  }

  private summed(state: Selection): Matrix {
    const { analysis } = this;
    const head = analysis.hasHeads(state.scope) ? state.head : 0;
    const values = analysis.matrix(state.scope, state.layer, head);
    return aggregate(values, analysis.keys.token.length, this.queries(state), this.keys(state));
  }

  /** A window's map with own tokens also in the blocks that are given without them. */
  private withOwn(matrix: Matrix, state: Selection): Matrix {
    const owns = this.analysis.owns(state.scope, state.layer);
    if (!owns) return matrix;
    const [own, values] = [this.own(state), matrix.values.slice()];
    this.hiding(state).forEach((column, row) => {
      const at = row * matrix.columns + column;
      if (own[row]! < 0 && column >= 0 && !Number.isNaN(owns[row]!)) values[at] = (values[at]! || 0) + owns[row]!;
    });
    return { ...matrix, values };
  }

  /** For every row of a view the column of the same token, or the same word; -1 where there is none. */
  own(state: Selection): Int32Array {
    const { queries, keys } = this.analysis;
    return this.columns(`own/${state.units}/${state.special}`, state, (query, key) => {
      const same = (queries.count?.[query] ?? 1) === (keys.count?.[key] ?? 1);
      return same && queries.position[query] === keys.position[key];
    });
  }

  /** The same, where several tokens are one column: the one that the row's token is in. */
  private hiding(state: Selection): Int32Array {
    const { queries, keys } = this.analysis;
    return this.columns(`hiding/${state.units}/${state.special}`, state, (query, key) => {
      const after = queries.position[query]! - keys.position[key]!;
      return after >= 0 && after < (keys.count?.[key] ?? 1);
    });
  }

  /** For every row of a view the column of a key of the same text that belongs to it. */
  private columns(name: string, state: Selection, belongs: (query: number, key: number) => boolean): Int32Array {
    let columns = this.owns.get(name);
    if (!columns) {
      const { group, token } = this.analysis.keys;
      const candidates = [...token.keys()].filter((key) => group?.[key] !== "source");
      const [queries, keys] = [this.queries(state), this.keys(state)];
      columns = Int32Array.from(queries.members, ([first]) => {
        return keys.of[candidates.find((key) => belongs(first!, key)) ?? -1] ?? -1;
      });
      this.owns.set(name, columns);
    }
    return columns;
  }

  /** What part of every row its own token is, whether that is shown or not. */
  ownShares(state: Selection): Float32Array {
    const name = identity({ ...state, norm: "none", own: "shown" });
    let shares = this.shares.get(name);
    if (!shares) {
      const whole = this.matrix({ ...state, base: "", norm: "none", own: "shown" });
      shares = ownShares(whole, this.own(state), this.analysis.owns(state.scope, state.layer));
      this.shares.set(name, shares);
    }
    return shares;
  }

  /** Whether what a state shows goes to both sides of 0. */
  signed(state: Selection): boolean {
    return state.base !== "" || (this.analysis.scope(state.scope)?.signed ?? false);
  }

  /** How far the colours of a map reach and how values lie on them; `shared`, those of all maps of the analysis. */
  colouring(state: Selection & Pick<State, "range" | "scale">): Range & { scale: Scale } {
    const { sizes, ...range } = state.range === "map" ? this.spreadOf(state) : this.sharedSpread(state);
    return { ...range, scale: scaleFor(state.scale, sizes, range.limit) };
  }

  private spreadOf(state: Selection): Spread {
    const name = `${identity(state)}-${state.base}`;
    let spread = this.spreads.get(name);
    if (!spread) {
      const matrix = this.coloured(state);
      spread = { ...typicalRange(rowMaxima(matrix), house.outlier), sizes: sizesOf(matrix) };
      this.spreads.set(name, spread);
    }
    return spread;
  }

  private sharedSpread(state: Selection): Spread {
    const name = `all/${identity({ ...state, layer: 0, scope: "" })}-${state.base}`;
    let shared = this.spreads.get(name);
    if (!shared) {
      const { layers, scopeNames } = this.analysis;
      const all = layers.flatMap((layer) => scopeNames.map((scope) => this.coloured({ ...state, layer, scope })));
      const maxima = Float32Array.from(all.flatMap((matrix) => [...rowMaxima(matrix)]));
      const sizes = Float32Array.from(all.flatMap((matrix) => [...sizesOf(matrix, SAMPLED_OF_EACH)])).sort();
      shared = { ...typicalRange(maxima, house.outlier), sizes };
      this.spreads.set(name, shared);
    }
    return shared;
  }

  /** The map as it is painted: of a block of tokens, what each of them has on average. */
  painted(state: Selection): Matrix {
    const matrix = this.matrix(state);
    const { count } = this.analysis.keys;
    if (!count) return matrix;
    const sizes = this.keys(state).members.map(([token]) => count[token!]!);
    return this.remember(`${identity(state)}-${state.base}/painted`, () => ({
      ...matrix,
      values: matrix.values.map((value, at) => value / sizes[at % matrix.columns]!),
    }));
  }

  /** The values that colours are for: where own tokens are grey, the others. */
  private coloured(state: Selection): Matrix {
    const matrix = this.painted(state);
    return state.own === "grey" ? withoutOwn(matrix, this.own(state)) : matrix;
  }

  /** Forget what was computed (after exact values came in). */
  forget(): void {
    this.matrices.clear();
    this.spreads.clear();
    this.shares.clear();
    this.kept = 0;
  }

  private remember(name: string, make: () => Matrix): Matrix {
    let matrix = this.matrices.get(name);
    if (!matrix) {
      matrix = make();
      this.matrices.set(name, matrix);
      this.kept += matrix.values.length;
      for (const [oldest, { values }] of this.matrices) {
        if (this.kept <= MOST_KEPT || oldest === name) break;
        this.matrices.delete(oldest);
        this.kept -= values.length;
      }
    }
    return matrix;
  }
}

function identity(state: Selection): string {
  return [state.scope, state.layer, state.head, state.norm, state.units, state.special, state.own].join("/");
}
