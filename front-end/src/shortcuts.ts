/** Keyboard shortcuts: one list for the help and for the page, which gets every key that no control has handled. */

export interface Shortcut {
  /** As the help shows them. */
  keys: string;
  description: string;
  /** By key; left out where a panel handles the keys itself. */
  actions?: Record<string, () => void>;
}

/** Run the shortcut of a key, unless it is being typed into a field or belongs to the browser. */
export function runShortcut(shortcuts: readonly Shortcut[], event: KeyboardEvent): void {
  const target = event.composedPath()[0] as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || /^(SELECT|TEXTAREA)$/u.test(target.tagName)) return;
  if (event.defaultPrevented || (target instanceof HTMLInputElement && /^(text|search)$/u.test(target.type))) return;
  // Where something has the focus, arrows are its own.
  if (event.key.startsWith("Arrow") && target !== document.body) return;
  const shortcut = shortcuts.find(({ actions }) => actions !== undefined && Object.hasOwn(actions, event.key));
  if (!shortcut) return;
  event.preventDefault();
  event.stopPropagation();
  shortcut.actions?.[event.key]?.();
}
