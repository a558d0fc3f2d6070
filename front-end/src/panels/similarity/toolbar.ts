/** In which units the texts are shown, and how much of the table is drawn between them. */
import { percentSlider, popover, toggle } from "../../draw/controls";
import { h } from "../../draw/dom";
import { type Similarity, unitKinds } from "../../model/similarity";
import type { SimilarityState } from "../../model/similaritystate";
import type { Store } from "../../model/store";
import type { UnitKind } from "../../model/tokens";
import { Toolbox } from "../basetoolbar";

export class SimilarityToolbar extends Toolbox<SimilarityState> {
  readonly element: HTMLElement;

  constructor(
    store: Store<SimilarityState>,
    private readonly similarities: readonly Similarity[],
  ) {
    super(store);
    this.element = h(
      "div",
      { class: "toolbar", role: "group", "aria-label": "What is shown" },
      this.units((state) => this.kinds(state)),
      this.share(),
      this.special(),
      h("div", { class: "end" }, popover("Display", "display", this.theme())),
    );
  }

  kinds({ pair }: SimilarityState): UnitKind[] {
    return unitKinds(this.similarities[pair]!);
  }

  private share(): HTMLElement {
    const title = "The fewest pairs of tokens that carry this share of all there is between the texts";
    const slider = percentSlider("Share shown", title, (share) => this.store.set({ share }));
    return this.add(slider, ({ share, pair }) => ({
      value: String(share),
      hidden: this.similarities[pair]!.table === null,
    }));
  }

  private special(): HTMLElement {
    const control = toggle("Special tokens", (special) => this.store.set({ special }));
    return this.add(control, ({ special }) => ({ value: String(special) }));
  }
}
