/** The base of everything on the page: an element that is updated with what it shows, until it is disposed of. */
import type { Cell } from "../draw/geometry";
import type { View } from "../draw/view";
import { Lifetime } from "../lifetime";
import type { Pane } from "../model/pane";
import type { Store } from "../model/store";

/** `Shown` is what it shows: the view of one analysis, or the state that all of them share. */
export abstract class Panel<Shown = View> {
  abstract readonly element: HTMLElement;
  protected readonly lifetime = new Lifetime();

  abstract update(shown: Shown): void;

  /** Remove it from the page, with its listeners, timers and inner panels. */
  dispose(): void {
    this.lifetime.end();
    this.element.remove();
  }

  /** Add an inner panel, which is disposed of together with this one. */
  protected own<Inner extends { dispose(): void }>(inner: Inner): Inner {
    this.lifetime.onEnd(() => inner.dispose());
    return inner;
  }
}

/** A panel that fills the card of its analysis, one of several to choose from. */
export interface MainPanel extends Panel {
  /** Buttons for the header of the card. */
  readonly tools?: HTMLElement;
  /** Highlight a cell, hovered here or in the other analysis, without redrawing the rest. */
  point?(cell: Cell | null): void;
  /** Focus the search for tokens. */
  find?(): void;
  /** Handle a key; whether it was handled. */
  press?(key: string): boolean;
}

/** What the panels of one analysis share with the rest of the page. */
export interface Context {
  store: Store;
  pane: Pane;
  /** All analyses on the page, including this one. */
  panes: readonly Pane[];
  /** Units along the axes of the view. */
  choose(cell: Cell): void;
  hover(cell: Cell | null): void;
}
