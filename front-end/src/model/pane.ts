/** One analysis of those shown, with the shared state translated to what it has: its own scopes, layers and tokens. */

import { align } from "./align";
import type { Analysis } from "./analysis";
import { Lens } from "./lens";
import { fitState, type State } from "./state";

export class Pane {
  private readonly decoder: Lens;
  private readonly encoder: Lens | null;
  private readonly projected = new Map<Lens, Lens>();
  private links = new Map<string, number[]>();

  constructor(
    readonly index: number,
    readonly analysis: Analysis,
    private readonly first: Pane | null,
  ) {
    this.decoder = new Lens(analysis);
    this.encoder = analysis.encoder ? new Lens(analysis.encoder) : null;
  }

  /** The lens on the decoder (or the only stack), or on the encoder if that is looked at and exists. */
  lens(state: State): Lens {
    const lens = state.part === "encoder" && this.encoder ? this.encoder : this.decoder;
    if (state.measure === "norm" || !lens.analysis.projections) return lens;
    let projected = this.projected.get(lens);
    if (!projected) {
      projected = new Lens(lens.analysis.projections);
      this.projected.set(lens, projected);
    }
    return projected;
  }

  /** The shared state as this pane can show it. Token indices of the shared state are those of the first pane. */
  state(shared: State): State {
    const { analysis } = this.lens(shared);
    const query = this.fromFirst(shared, "queries", shared.query);
    const key = shared.key < 0 ? -1 : this.fromFirst(shared, "keys", shared.key);
    const fitted = fitState({ ...shared, query: Math.max(0, query), key }, analysis);
    return fitted.own === "auto" ? { ...fitted, own: analysis.hasResidual(fitted.scope) ? "out" : "shown" } : fitted;
  }

  fromFirst(shared: State, axis: "queries" | "keys", index: number): number {
    if (!this.first) return index;
    return (
      this.link(
        `${axis}/${shared.part}/in`,
        this.first.lens(shared).analysis[axis].token,
        this.lens(shared).analysis[axis].token,
      )[index] ?? -1
    );
  }

  toFirst(shared: State, axis: "queries" | "keys", index: number): number {
    if (!this.first) return index;
    return (
      this.link(
        `${axis}/${shared.part}/out`,
        this.lens(shared).analysis[axis].token,
        this.first.lens(shared).analysis[axis].token,
      )[index] ?? -1
    );
  }

  private link(name: string, from: string[], to: string[]): number[] {
    let link = this.links.get(name);
    if (!link) {
      link = align(from, to);
      this.links.set(name, link);
    }
    return link;
  }
}

/** The colours of a pane: those of all panes where they show the same quantity, so that they can be compared. */
export function sharedColouring(pane: Pane, panes: readonly Pane[], shared: State): ReturnType<Lens["colouring"]> {
  const all = panes.map((one) => {
    const [lens, state] = [one.lens(shared), one.state(shared)];
    return { one, quantity: lens.analysis.scope(state.scope)?.quantity, colouring: lens.colouring(state) };
  });
  const own = all.find(({ one }) => one === pane)!;
  const alike = all.filter(({ quantity }) => shared.norm !== "none" || quantity === own.quantity);
  const most = (field: "limit" | "most"): number => Math.max(...alike.map(({ colouring }) => colouring[field]));
  return alike.length > 1 ? { ...alike[0]!.colouring, limit: most("limit"), most: most("most") } : own.colouring;
}
