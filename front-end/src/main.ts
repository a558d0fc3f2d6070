/** The three doors: a page with its data inside, the web app, and a notebook widget (the default export, for anywidget). */
import { Explorer, failure } from "./explorer";
import { shadow } from "./hosts/shadow";
import { type Settings, WebApp } from "./hosts/webapp";
import { type WidgetModel, widgetHost } from "./hosts/widget";
import type { Host, Payload } from "./model/payload";

const addressBar: Host = {
  linkable: window.self === window.top,
  readState: () => window.location.hash.slice(1),
  writeState: (fragment) => {
    try {
      window.history.replaceState(null, "", `#${fragment}`);
    } catch {
      // A sandboxed frame has no address of its own: the view works, it just cannot be shared by link.
    }
  },
  dress: (dark) => {
    document.documentElement.dataset.normscopeTheme = dark ? "dark" : "light";
  },
  onState: (listener) => window.addEventListener("hashchange", () => listener(window.location.hash.slice(1))),
};

function dressDocument(): void {
  const page = new CSSStyleSheet();
  page.replaceSync("html{background:#f7f5f1}html[data-normscope-theme=dark]{background:#121116}body{margin:0}");
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, page];
}

async function openPage(data: HTMLElement): Promise<void> {
  dressDocument();
  const root = shadow(document.getElementById("normscope")!);
  try {
    await Explorer.mount(root, JSON.parse(data.textContent ?? "") as Payload, addressBar);
  } catch (error) {
    failure(root, error);
  }
}

function openWebApp(data: HTMLElement): void {
  dressDocument();
  const root = shadow(document.getElementById("normscope")!);
  const dress = (dark: boolean): void => {
    addressBar.dress?.(dark);
    root.dataset.theme = dark ? "dark" : "light";
  };
  dress(window.matchMedia("(prefers-color-scheme: dark)").matches);
  new WebApp(root, JSON.parse(data.textContent ?? "") as Settings, { ...addressBar, dress });
}

const pageData = document.getElementById("normscope-page");
const serverData = document.getElementById("normscope-server");
if (pageData) void openPage(pageData);
else if (serverData) openWebApp(serverData);

export default {
  async render({ model, el }: { model: WidgetModel; el: HTMLElement }): Promise<void> {
    const root = shadow(el);
    try {
      await Explorer.mount(root, JSON.parse(model.get("payload") as string) as Payload, widgetHost(model));
    } catch (error) {
      failure(root, error);
    }
  },
};
