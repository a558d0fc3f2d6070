/** The state: changes are collected, and listeners called once per frame, until the store is closed. */
import type { State } from "./state";

export type Listener<Fields> = (state: Fields, changed: ReadonlySet<keyof Fields>) => void;

export class Store<Fields extends object = State> {
  private readonly listeners: Listener<Fields>[] = [];
  private readonly changed = new Set<keyof Fields>();
  private frame = 0;
  private closed = false;

  constructor(private current: Fields) {}

  get state(): Fields {
    return this.current;
  }

  set(patch: Partial<Fields>): void {
    if (this.closed) return;
    for (const name of Object.keys(patch) as (keyof Fields)[]) {
      if (patch[name] !== this.current[name]) this.changed.add(name);
    }
    this.current = { ...this.current, ...patch };
    if (this.changed.size > 0 && this.frame === 0) this.frame = requestAnimationFrame(() => this.flush());
  }

  subscribe(listener: Listener<Fields>): void {
    this.listeners.push(listener);
  }

  /** From now on nothing changes and no listener is called. */
  close(): void {
    this.closed = true;
    cancelAnimationFrame(this.frame);
  }

  private flush(): void {
    const changed = new Set(this.changed);
    this.frame = 0;
    this.changed.clear();
    for (const listener of this.listeners) listener(this.current, changed);
  }
}
