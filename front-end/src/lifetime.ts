/** What must end together: the listeners, timers and observers of one part of the page. */

export class Lifetime {
  private readonly controller = new AbortController();

  get over(): boolean {
    return this.controller.signal.aborted;
  }

  end(): void {
    this.controller.abort();
  }

  /** Something to do at the end, or at once if that has come. */
  atEnd(act: () => void): void {
    if (this.over) act();
    else this.controller.signal.addEventListener("abort", act, { once: true });
  }

  listen<Kind extends Event>(target: EventTarget, name: string, act: (event: Kind) => void): void {
    target.addEventListener(name, act as EventListener, { signal: this.controller.signal });
  }

  observeSize(element: Element, act: () => void): void {
    const observer = new ResizeObserver(act);
    observer.observe(element);
    this.atEnd(() => observer.disconnect());
  }
}
