/** What every part of the page is: put into its place once, brought up to date with what is shown, and cleared away. */
import type { Cell } from "../draw/geometry";
import type { View } from "../draw/view";
import { Lifetime } from "../lifetime";
import type { Pane } from "../model/pane";
import type { Store } from "../model/store";

/** `Shown` is what it follows: the view of one analysis, or the state that all of them share. */
export interface Panel<Shown = View> {
  mount(place: HTMLElement): void;
  update(shown: Shown): void;
  /** Nothing of it listens, waits or is on the page any more. */
  dispose(): void;
}

/** A panel that fills the card of its analysis, one of several to choose from. */
export interface MainPanel extends Panel {
  /** Buttons for the header of the card. */
  readonly tools?: HTMLElement;
  /** Show a cell as pointed at, here or in the other analysis, without drawing all of the rest again. */
  point?(cell: Cell | null): void;
  /** Begin to look for a token. */
  find?(): void;
  /** Do what a key does; whether it does anything. */
  press?(key: string): boolean;
  hide(hidden: boolean): void;
}

/** What the panels of one analysis have to do with the rest of the page. */
export interface Context {
  store: Store;
  pane: Pane;
  /** All analyses that are shown, this one among them. */
  panes: readonly Pane[];
  /** Units along the axes of the view. */
  choose(cell: Cell): void;
  hover(cell: Cell | null): void;
}

/** A panel that is one element. */
export abstract class ElementPanel<Shown = View> implements Panel<Shown> {
  abstract readonly element: HTMLElement;
  protected readonly life = new Lifetime();

  abstract update(shown: Shown): void;

  mount(place: HTMLElement): void {
    place.append(this.element);
  }

  hide(hidden: boolean): void {
    this.element.hidden = hidden;
  }

  dispose(): void {
    this.life.end();
    this.element.remove();
  }
}
