/** The state in one place: changes are collected and told to everyone once per frame. */
import type { State } from "./state";

export type Listener = (state: State, changed: ReadonlySet<keyof State>) => void;

export class Store {
  private readonly listeners: Listener[] = [];
  private readonly changed = new Set<keyof State>();
  private scheduled = false;

  constructor(private current: State) {}

  get state(): State {
    return this.current;
  }

  set(patch: Partial<State>): void {
    for (const name of Object.keys(patch) as (keyof State)[]) {
      if (patch[name] !== this.current[name]) this.changed.add(name);
    }
    this.current = { ...this.current, ...patch };
    if (this.changed.size > 0 && !this.scheduled) {
      this.scheduled = true;
      requestAnimationFrame(() => this.flush());
    }
  }

  subscribe(listener: Listener): void {
    this.listeners.push(listener);
  }

  private flush(): void {
    const changed = new Set(this.changed);
    this.scheduled = false;
    this.changed.clear();
    for (const listener of this.listeners) listener(this.current, changed);
  }
}
