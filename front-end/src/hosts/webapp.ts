/** The web app's own part: a text to type, an analysis that waits, runs and can be cancelled, then the explorer. */
import { menu } from "../draw/controls";
import { bdi, h } from "../draw/dom";
import { failure, mount } from "../explorer";
import type { Payload } from "../model/payload";
import type { ExactRequest, Host } from "./host";

export interface Settings {
  models: string[];
  characters: number;
  tokens: number;
}

interface Status {
  stage: "waiting" | "running" | "done" | "failed" | "cancelled";
  ahead: number;
  begun: number;
  total: number;
  message: string;
}

export class WebApp {
  private readonly text = h("textarea", {
    rows: 2,
    id: "text",
    placeholder: "Type a text\u2026",
    "aria-label": "Text to analyse",
  });
  private readonly second = h("textarea", { rows: 2, placeholder: "The same text", "aria-label": "Second text" });
  private readonly heads = h("input", { type: "checkbox" });
  private readonly submit = h("button", { type: "submit", class: "primary" }, "Analyse");
  private readonly stop = h(
    "button",
    { type: "button", class: "cancel", hidden: true, click: () => void this.cancel() },
    "Cancel",
  );
  private readonly bar = h("progress", { max: 1, value: 0, hidden: true, "aria-label": "Progress" });
  private readonly message = h("p", { class: "message", role: "status" });
  private readonly comparing = h("details", { class: "compare" });
  private readonly stage = h("div", { class: "explorer-holder" });
  private models = ["", ""];
  private job = "";
  private source: EventSource | null = null;
  /** Clears away the explorer that is shown. */
  private close: () => void = () => undefined;

  constructor(
    root: HTMLElement,
    settings: Settings,
    private readonly addressBar: Host,
  ) {
    const choices = settings.models.map((name) => ({ value: name, label: name }));
    const first = settings.models[0] ?? "";
    this.models = [first, settings.models[1] ?? first];
    const picks = [0, 1].map((place) => {
      const pick = menu("Model", choices, (value) => (this.models[place] = value));
      pick.set(this.models[place]!);
      pick.element.hidden = settings.models.length < 2;
      return pick.element;
    });
    this.text.maxLength = settings.characters;
    this.second.maxLength = settings.characters;
    this.comparing.append(h("summary", {}, "Compare with\u2026"), h("div", { class: "entry" }, this.second, picks[1]!));
    const form = h(
      "form",
      { class: "ask" },
      h("div", { class: "entry" }, this.text, this.submit, this.stop),
      h(
        "div",
        { class: "options" },
        settings.models.length < 2 ? h("span", { class: "hint" }, "Model ", bdi(first)) : picks[0]!,
        h("label", { class: "check" }, this.heads, "single heads"),
        this.comparing,
      ),
      this.bar,
      this.message,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.ask();
    });
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    this.stage.append(
      h(
        "div",
        { class: "welcome" },
        h("span", { class: "wordmark" }, "normscope"),
        h("p", {}, "See what really flows between the tokens of a text: type one above."),
      ),
    );
    root.replaceChildren(form, this.stage);
    root.classList.add("webapp");
    this.text.focus();
  }

  private async ask(): Promise<void> {
    await this.cancel();
    const analyses = [{ text: this.text.value, model: this.models[0] }];
    if (this.comparing.open)
      analyses.push({
        text: this.second.value.trim() === "" ? this.text.value : this.second.value,
        model: this.models[1],
      });
    this.say("Asking\u2026", false);
    try {
      const answer = await fetch("/api/jobs", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ analyses, heads: this.heads.checked }),
      });
      const content = (await answer.json()) as { id?: string; error?: string };
      if (!answer.ok || content.id === undefined) this.say(content.error ?? "The server refused.", true);
      else this.follow(content.id);
    } catch {
      this.say("The server does not answer. Is it still running?", true);
    }
  }

  private follow(id: string): void {
    this.source?.close();
    this.job = id;
    this.busy(true);
    const source = new EventSource(`/api/jobs/${id}/events`);
    this.source = source;
    source.addEventListener("message", (event) => this.told(id, JSON.parse(String(event.data)) as Status));
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) this.finish("The connection to the server was lost.", true);
    });
  }

  private told(id: string, status: Status): void {
    if (id !== this.job) return;
    switch (status.stage) {
      case "waiting":
        this.bar.removeAttribute("value");
        this.say(`Waiting: ${status.ahead} in the queue`, false);
        break;
      case "running":
        if (status.total > 0) this.bar.value = status.begun / (status.total + 1);
        this.say(status.total > 0 ? `Layer ${status.begun} of ${status.total}` : "Starting", false);
        break;
      case "done":
        void this.show(id);
        break;
      default:
        this.finish(status.message, status.stage === "failed");
    }
  }

  private async show(id: string): Promise<void> {
    this.source?.close();
    try {
      const answer = await fetch(`/api/jobs/${id}/result`);
      if (!answer.ok) throw new Error("the server has forgotten it");
      await this.explore(id, (await answer.json()) as Payload);
    } catch (error) {
      this.close();
      failure(this.stage, error);
    }
    if (id === this.job) this.finish("", false);
  }

  /** Clear away the explorer that is there and mount another, unless yet another has been asked for meanwhile. */
  private async explore(id: string, payload: Payload): Promise<void> {
    if (id !== this.job) return;
    this.close();
    const holder = h("div", { class: "root inner" });
    this.stage.replaceChildren(holder);
    const close = await mount(holder, payload, { ...this.addressBar, exact: (request) => exact(id, request) });
    if (holder.isConnected) this.close = close;
    else close();
  }

  private async cancel(): Promise<void> {
    if (this.job === "") return;
    const id = this.job;
    this.finish("Cancelled.", false);
    await fetch(`/api/jobs/${id}`, { method: "DELETE" }).catch(() => undefined);
  }

  private finish(message: string, wrong: boolean): void {
    this.source?.close();
    this.source = null;
    this.job = "";
    this.busy(false);
    this.say(message, wrong);
  }

  private busy(busy: boolean): void {
    this.bar.hidden = !busy;
    this.stop.hidden = !busy;
    this.submit.hidden = busy;
  }

  private say(message: string, wrong: boolean): void {
    this.message.textContent = message;
    this.message.classList.toggle("wrong", wrong);
  }
}

async function exact(id: string, request: ExactRequest): Promise<Float32Array> {
  const query = new URLSearchParams(Object.entries(request).map(([name, value]) => [name, String(value)]));
  const answer = await fetch(`/api/jobs/${id}/exact?${query}`);
  if (!answer.ok) throw new Error("the server no longer has this analysis");
  return new Float32Array(await answer.arrayBuffer());
}
