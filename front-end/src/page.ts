/** What the pages of one kind of result share: a state that the address keeps, keys, and a light or dark look. */
import { inkOf } from "./draw/ink";
import type { Host } from "./hosts/host";
import { Lifetime } from "./lifetime";
import type { State } from "./model/state";
import type { Store } from "./model/store";
import type { Look } from "./section";
import { runShortcut, type Shortcut } from "./shortcuts";

export class Page<Fields extends Pick<State, "theme">> {
  private readonly lifetime = new Lifetime();
  private readonly darkScheme = window.matchMedia("(prefers-color-scheme: dark)");
  private readonly paper = window.matchMedia("print");
  private pending = 0;

  constructor(
    private readonly root: HTMLElement,
    private readonly host: Host,
    private readonly store: Store<Fields>,
  ) {
    root.classList.add("explorer");
  }

  get ended(): boolean {
    return this.lifetime.ended;
  }

  /** Remove the page: its panels, its listeners, and what it wrote into the root. */
  dispose(panels: readonly ({ dispose: () => void } | null)[]): void {
    this.lifetime.end();
    this.store.close();
    window.cancelAnimationFrame(this.pending);
    for (const panel of panels) panel?.dispose();
    this.root.classList.remove("explorer");
    this.root.replaceChildren();
  }

  /** Listen to keys, to the look that is wanted, and to the address, whose state `parse` reads. */
  listen(shortcuts: () => readonly Shortcut[], show: () => void, parse: (fragment: string) => Fields): void {
    const { host, lifetime, store } = this;
    lifetime.listen<KeyboardEvent>(host.alone ? document : this.root, "keydown", (event) =>
      runShortcut(shortcuts(), event),
    );
    for (const media of [this.darkScheme, this.paper]) lifetime.listen(media, "change", show);
    const unsubscribe = host.onState?.((fragment) => store.set(parse(fragment)));
    if (unsubscribe) lifetime.onEnd(unsubscribe);
  }

  /** The look of the chosen theme, which the root and the host take on. */
  look(): Look {
    const dark = this.dark();
    this.root.dataset.theme = dark ? "dark" : "light";
    this.host.applyTheme?.(dark);
    return { ink: inkOf(this.root), dark };
  }

  /** Call something with the next frame, in place of what waits for it already. */
  later(callback: () => void): void {
    window.cancelAnimationFrame(this.pending);
    this.pending = window.requestAnimationFrame(callback);
  }

  /** Paper is light. */
  private dark(): boolean {
    const { theme } = this.store.state;
    if (this.paper.matches) return false;
    return theme === "auto" ? this.darkScheme.matches : theme === "dark";
  }
}
