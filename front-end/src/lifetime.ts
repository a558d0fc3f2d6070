/** Everything that ends together: the listeners, timers and observers of one panel. */

export class Lifetime {
  private readonly controller = new AbortController();

  get ended(): boolean {
    return this.controller.signal.aborted;
  }

  end(): void {
    this.controller.abort();
  }

  /** Call something at the end, or at once if it has ended already. */
  onEnd(callback: () => void): void {
    if (this.ended) callback();
    else this.controller.signal.addEventListener("abort", callback, { once: true });
  }

  listen<Kind extends Event>(target: EventTarget, name: string, callback: (event: Kind) => void): void {
    target.addEventListener(name, callback as EventListener, { signal: this.controller.signal });
  }

  observeSize(element: Element, callback: () => void): void {
    const observer = new ResizeObserver(callback);
    observer.observe(element);
    this.onEnd(() => observer.disconnect());
  }
}
