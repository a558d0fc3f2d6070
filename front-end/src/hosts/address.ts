/** The page's own address as a host: the state is in its fragment, and the document takes on the theme. */
import type { Host } from "./host";

export const addressBar: Host = {
  alone: true,
  linkable: window.self === window.top,
  readState: () => window.location.hash.slice(1),
  writeState: (fragment) => {
    try {
      window.history.replaceState(null, "", `#${fragment}`);
    } catch {
      // A sandboxed frame has no address of its own: the view works, it just cannot be shared by link.
    }
  },
  applyTheme: (dark) => {
    document.documentElement.dataset.normscopeTheme = dark ? "dark" : "light";
  },
  onState: (listener) => {
    const changed = (): void => listener(window.location.hash.slice(1));
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  },
};

/** Our own style for a document that has nothing but us in it. */
export function styleDocument(): void {
  const page = new CSSStyleSheet();
  page.replaceSync("html{background:#f7f5f1}html[data-normscope-theme=dark]{background:#121116}body{margin:0}");
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, page];
}
