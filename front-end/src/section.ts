/** One of the two sections of the explorer, maps and flows, of which one is shown at a time. */
import type { Ink } from "./draw/ink";
import type { Figure } from "./exports/figure";
import type { State } from "./model/state";
import type { Panel } from "./panels/panel";
import type { Shortcut } from "./shortcuts";

export interface Look {
  ink: Ink;
  dark: boolean;
}

/** The state that everything shares, and how things look now. */
export interface Scene {
  shared: State;
  look: Look;
}

/** What can be exported of the current view. */
export interface Exportable {
  /** The name of a file, without its ending. */
  name(): string;
  /** How precise the data is. */
  note(): string;
  figure(): Figure;
  csv(): Promise<string>;
  json(): Promise<string>;
}

export interface Section extends Panel<Scene> {
  readonly exportable: Exportable;
  readonly shortcuts: Shortcut[];
}
