/** The web app: a form to ask with, work on the server that is followed and can be given up, then the explorer. */
import { h } from "../draw/dom";
import { failure } from "../explorer";
import type { Payload } from "../model/payload";
import type { ExplainRequest } from "../model/request";
import { phrase } from "../model/tokens";
import { mount } from "../mount";
import { type Asked, formatAsked, looked, parseAsked } from "./asked";
import { Form, type ModelSettings, type Settings } from "./form";
import type { Host } from "./host";
import { Cancelled, exact, ServerJob, type Status } from "./jobs";

export type { Settings } from "./form";

const EXAMPLES = [
  "The chef who the critics loved finally opened a restaurant in Lyon.",
  "The trophy did not fit into the suitcase because it was too big.",
  "She poured water from the pitcher into the cup until it was full.",
];
const BEGINNINGS = [
  "Once upon a time there was a little girl named",
  "The capital of France is",
  "When Mary and John went to the store, John gave a drink to",
];

/** Texts to begin with, as a model reads them. */
function examplesFor({ reads, task, mask }: ModelSettings): string[] {
  if (reads === "image") return [];
  if (task === "causal-lm") return BEGINNINGS;
  if (mask !== null) return [`The capital of France is ${mask}.`, `The trophy did not fit because it was too ${mask}.`];
  return EXAMPLES;
}

/** An analysis as the server takes it. */
interface Order {
  text: string;
  model: string;
  method: string;
  pair: string;
  target: string;
  image: string | null;
}

interface Answered {
  asked: Asked;
  order: Order;
  payload: Payload;
}

export class WebApp {
  private readonly form: Form;
  private readonly bar = h("progress", { max: 1, value: 0, hidden: true, "aria-label": "Progress" });
  private readonly message = h("p", { class: "message", role: "status" });
  private readonly stage = h("div", { class: "explorer-holder" });
  private job: ServerJob | null = null;
  /** What is shown, as it stands in the address. */
  private shown = "";
  /** Clears away the explorer that is shown. */
  private close: () => void = () => undefined;

  constructor(
    root: HTMLElement,
    settings: Settings,
    private readonly addressBar: Host,
  ) {
    this.form = new Form(
      settings,
      () => void this.ask(),
      () => this.changed(),
    );
    this.form.stop.addEventListener("click", () => this.cancel());
    this.form.element.append(this.bar, this.message);
    this.welcome();
    root.replaceChildren(this.form.element, this.stage);
    root.classList.add("webapp");
    this.form.focus();
    window.addEventListener("hashchange", () => this.openAddress());
    this.openAddress();
  }

  /** Ask for what the address names, if that is not what is shown. */
  private openAddress(): void {
    const asked = parseAsked(window.location.hash);
    if (!asked || formatAsked(asked) === this.shown) return;
    this.form.set(asked);
    if (this.form.model.reads === "text") void this.ask();
  }

  private changed(): void {
    if (this.shown === "") this.welcome();
  }

  private welcome(): void {
    const examples = examplesFor(this.form.model).map((text) =>
      h("button", { type: "button", class: "example", click: () => this.example(text) }, text),
    );
    this.stage.replaceChildren(
      h(
        "div",
        { class: "welcome" },
        h("span", { class: "wordmark" }, "normscope"),
        h(
          "p",
          {},
          this.form.model.reads === "image"
            ? "See what really flows between the patches of an image: choose one above."
            : "See what really flows between the tokens of a text: type one above, or begin with one of these.",
        ),
        ...examples,
      ),
    );
  }

  private example(text: string): void {
    this.form.setText(text);
    void this.ask();
  }

  private async ask(): Promise<void> {
    this.cancel();
    const { asked } = this.form;
    const job = new ServerJob();
    this.job = job;
    this.busy(true);
    this.say("Asking\u2026", false);
    try {
      const order = { ...ordered(asked), image: await this.form.image() };
      const payload = await job.run(requested(order, asked), (status) => this.told(job, status));
      await this.explore(job, { asked, order, payload });
      this.finish(job, "", false);
    } catch (error) {
      const given = error instanceof Cancelled;
      this.finish(job, error instanceof Error ? error.message : String(error), !given);
    }
  }

  private told(job: ServerJob, status: Status): void {
    if (job !== this.job) return;
    if (status.stage === "waiting") {
      this.bar.removeAttribute("value");
      this.say(`Waiting: ${status.ahead} in the queue`, false);
      return;
    }
    if (status.total > 0) this.bar.value = status.begun / (status.total + 1);
    this.say(status.total > 0 ? `Layer ${status.begun} of ${status.total}` : "Starting", false);
  }

  /** Clear away the explorer that is there and mount another, unless yet another has been asked for meanwhile. */
  private async explore(job: ServerJob, { asked, order, payload }: Answered): Promise<void> {
    if (job !== this.job) return;
    this.close();
    this.close = () => undefined;
    const again = this.shown === "" || this.shown === formatAsked(asked);
    this.shown = formatAsked(asked);
    if (!again) this.write("");
    const holder = h("div", { class: "root inner" });
    this.stage.replaceChildren(holder);
    const name = phrase(asked.text).slice(0, 60);
    document.title = name === "" ? "normscope" : `${name} \u00b7 normscope`;
    try {
      const close = await mount(holder, payload, this.hostOf(job.id, order));
      if (holder.isConnected) this.close = close;
      else close();
    } catch (error) {
      failure(this.stage, error);
    }
    this.write(looked(this.addressBar.readState()));
  }

  /** The address: what was asked for, and how it is looked at. */
  private write(fragment: string): void {
    this.addressBar.writeState([this.shown, fragment].filter(Boolean).join("&"));
  }

  private hostOf(id: string, order: Order): Host {
    const { addressBar } = this;
    const explains = this.form.model.task !== null;
    return {
      ...addressBar,
      readState: () => looked(addressBar.readState()),
      writeState: (fragment) => this.write(fragment),
      onState: (listener) => addressBar.onState!((fragment) => listener(looked(fragment))),
      exact: (request) => exact(id, request),
      ...(explains ? { explain: (request: ExplainRequest) => explained(order, request) } : {}),
    };
  }

  private cancel(): void {
    const { job } = this;
    if (!job) return;
    this.finish(job, "Cancelled.", false);
    job.cancel();
  }

  private finish(job: ServerJob, message: string, wrong: boolean): void {
    if (job !== this.job) return;
    this.job = null;
    this.busy(false);
    this.say(message, wrong);
  }

  private busy(busy: boolean): void {
    this.bar.hidden = !busy;
    this.form.stop.hidden = !busy;
    this.form.submit.hidden = busy;
  }

  private say(message: string, wrong: boolean): void {
    this.message.textContent = message;
    this.message.classList.toggle("wrong", wrong);
  }
}

function ordered({ text, model, method, pair, reply }: Asked): Omit<Order, "image"> {
  return { text, model, method, pair, target: reply };
}

function requested(order: Order, { other, heads }: Asked): unknown {
  const second = other ? [{ ...other, pair: "", image: order.image }] : [];
  return { analyses: [order, ...second], heads };
}

async function explained(order: Order, request: ExplainRequest): Promise<Payload["explanations"][number]> {
  const { text, model, pair, target, image } = order;
  const asked = { text, model, pair, target, image, ...request };
  const payload = await new ServerJob().run({ explain: asked }, () => undefined);
  const [explanation] = payload.explanations;
  if (!explanation) throw new Error("The server explained nothing.");
  return explanation;
}
