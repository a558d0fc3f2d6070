/** An analysis seen through a state: the units along its axes and the matrix that a layer and scope give, kept for reuse. */
import type { Analysis } from "./analysis";
import { aggregate, largest, type Matrix, normalise, subtract } from "./matrix";
import type { State } from "./state";
import { type Units, unitsOf } from "./tokens";

/** How many numbers all kept matrices may have together. */
const MOST_KEPT = 8_000_000;

export type Selection = Pick<State, "layer" | "scope" | "base" | "head" | "norm" | "units" | "special">;

export class Lens {
  private readonly matrices = new Map<string, Matrix>();
  private readonly limits = new Map<string, number>();
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
    let found = this.units.get(name);
    if (!found) {
      found = unitsOf(this.analysis[axis], { words: state.units === "word", special: state.special });
      this.units.set(name, found);
    }
    return found;
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

  /** The largest absolute value of the map, or of all maps of the analysis. */
  limit(state: Selection, range: State["range"]): number {
    if (range === "map") return largest(this.matrix(state).values);
    const name = `${identity({ ...state, layer: 0, scope: "" })}-${state.base}`;
    let found = this.limits.get(name);
    if (found === undefined) {
      found = 0;
      for (const layer of this.analysis.layers) {
        for (const scope of this.analysis.scopes) {
          found = Math.max(found, largest(this.matrix({ ...state, layer, scope }).values));
        }
      }
      this.limits.set(name, found);
    }
    return found;
  }

  /** Forget what was computed (after exact values came in). */
  forget(): void {
    this.matrices.clear();
    this.limits.clear();
    this.kept = 0;
  }

  private remember(name: string, make: () => Matrix): Matrix {
    let found = this.matrices.get(name);
    if (!found) {
      found = make();
      this.matrices.set(name, found);
      this.kept += found.values.length;
      for (const [oldest, matrix] of this.matrices) {
        if (this.kept <= MOST_KEPT || oldest === name) break;
        this.matrices.delete(oldest);
        this.kept -= matrix.values.length;
      }
    }
    return found;
  }
}

function identity(state: Selection): string {
  return [state.scope, state.layer, state.head, state.norm, state.units, state.special].join("/");
}
