/** An analysis seen through a state: the units along its axes and the matrix that a layer and scope give, kept for reuse. */
import house from "../../../src/normscope/plots/palette.json";
import type { Analysis } from "./analysis";
import { aggregate, type Matrix, normalise, type Range, rowMaxima, subtract, typicalRange } from "./matrix";
import type { State } from "./state";
import { type Units, unitsOf } from "./tokens";

/** How many numbers all kept matrices may have together. */
const MOST_KEPT = 8_000_000;

export type Selection = Pick<State, "layer" | "scope" | "base" | "head" | "norm" | "units" | "special">;

export class Lens {
  private readonly matrices = new Map<string, Matrix>();
  private readonly ranges = new Map<string, Range>();
  private readonly units = new Map<string, Units>();
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
      units = unitsOf(this.analysis[axis], { words: state.units === "word", special: state.special });
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
      const { analysis } = this;
      const head = analysis.hasHeads(state.scope) ? state.head : 0;
      const values = analysis.matrix(state.scope, state.layer, head);
      const summed = aggregate(values, analysis.keys.token.length, this.queries(state), this.keys(state));
      return normalise(summed, state.norm);
    });
  }

  /** Whether what a state shows goes to both sides of 0. */
  signed(state: Selection): boolean {
    return state.base !== "" || (this.analysis.scope(state.scope)?.signed ?? false);
  }

  /** How far the colours of a map reach; `shared`, those of all maps of the analysis. */
  range(state: Selection, range: State["range"]): Range {
    if (range === "map") return typicalRange(rowMaxima(this.matrix(state)), house.outlier);
    const name = `${identity({ ...state, layer: 0, scope: "" })}-${state.base}`;
    let shared = this.ranges.get(name);
    if (shared === undefined) {
      const { layers, scopeNames } = this.analysis;
      const maxima = layers.flatMap((layer) =>
        scopeNames.flatMap((scope) => [...rowMaxima(this.matrix({ ...state, layer, scope }))]),
      );
      shared = typicalRange(Float32Array.from(maxima), house.outlier);
      this.ranges.set(name, shared);
    }
    return shared;
  }

  /** Forget what was computed (after exact values came in). */
  forget(): void {
    this.matrices.clear();
    this.ranges.clear();
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
  return [state.scope, state.layer, state.head, state.norm, state.units, state.special].join("/");
}
