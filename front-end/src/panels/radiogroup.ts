/** What groups of pictures to choose one of have in common: the scopes of the chain and the layers. */

const STEPS: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** Arrow keys choose the next or previous item, and move the focus to it. */
export function handleArrows(group: HTMLElement, current: () => number, step: (by: number) => void): void {
  group.addEventListener("keydown", (event) => {
    const by = STEPS[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const next = group.children[current() + by] as HTMLElement | undefined;
    step(by);
    next?.focus();
  });
}

/** Mark one item as chosen, and scroll the group (and nothing else) until it is in view. */
export function markChosen(group: HTMLElement, chosen: number): void {
  [...group.children].forEach((item, index) => {
    item.setAttribute("aria-checked", String(index === chosen));
    item.setAttribute("tabindex", index === chosen ? "0" : "-1");
  });
  const item = group.children[chosen] as HTMLElement | undefined;
  if (!item) return;
  const [top, left] = [item.offsetTop - group.offsetTop, item.offsetLeft - group.offsetLeft];
  const { scrollTop, scrollLeft, clientHeight, clientWidth } = group;
  if (top < scrollTop || top + item.offsetHeight > scrollTop + clientHeight)
    group.scrollTop = top - (clientHeight - item.offsetHeight) / 2;
  if (left < scrollLeft || left + item.offsetWidth > scrollLeft + clientWidth)
    group.scrollLeft = left - (clientWidth - item.offsetWidth) / 2;
}
