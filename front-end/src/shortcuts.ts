/** What the keys do: one list for the help and for the page, which hears every key that no control has used. */

export interface Shortcut {
  /** As the help writes them. */
  keys: string;
  does: string;
  /** By key; left out where a panel hears the keys itself. */
  acts?: Record<string, () => void>;
}

/** Act on a key, unless it is being typed into something or belongs to the browser. */
export function act(shortcuts: readonly Shortcut[], event: KeyboardEvent): void {
  const target = event.composedPath()[0] as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || /^(SELECT|TEXTAREA)$/u.test(target.tagName)) return;
  if (event.defaultPrevented || (target instanceof HTMLInputElement && /^(text|search)$/u.test(target.type))) return;
  // Where something has the focus, arrows are its own.
  if (event.key.startsWith("Arrow") && target !== document.body) return;
  const shortcut = shortcuts.find(({ acts }) => acts !== undefined && Object.hasOwn(acts, event.key));
  if (!shortcut) return;
  event.preventDefault();
  event.stopPropagation();
  shortcut.acts?.[event.key]?.();
}
