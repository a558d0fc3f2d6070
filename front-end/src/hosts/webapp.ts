/** The web app: a form for requests, the progress of the job on the server, then the explorer. */
import { h } from "../draw/dom";
import { failure } from "../explorer";
import type { Payload } from "../model/payload";
import type { ExplainRequest } from "../model/request";
import { phrase } from "../model/tokens";
import { mount } from "../mount";
import { Form, type ModelSettings, type Settings } from "./form";
import type { Host } from "./host";
import { Cancelled, exact, ServerJob, type Status } from "./jobs";
import { type AnalysisRequest, formatAnalysisRequest, parseAnalysisRequest, withoutRequest } from "./requests";

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

/** The input of an analysis as the server expects it. */
interface ServerInput {
  text: string;
  model: string;
  method: string;
  pair: string;
  decoder_text: string;
  image: string | null;
}

interface Answer {
  request: AnalysisRequest;
  input: ServerInput;
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
  /** Removes the explorer that is shown. */
  private close: () => void = () => undefined;

  constructor(
    root: HTMLElement,
    settings: Settings,
    private readonly addressBar: Host,
  ) {
    this.form = new Form(
      settings,
      () => void this.submit(),
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

  /** Submit the request of the address, unless it is already shown. */
  private openAddress(): void {
    const request = parseAnalysisRequest(window.location.hash);
    if (!request || formatAnalysisRequest(request) === this.shown) return;
    this.form.set(request);
    if (this.form.model.reads === "text") void this.submit();
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
            ? "See what flows between the patches of an image: choose one above."
            : "See what flows between the tokens of a text: type one above, or start with one of these.",
        ),
        ...examples,
      ),
    );
  }

  private example(text: string): void {
    this.form.setText(text);
    void this.submit();
  }

  private async submit(): Promise<void> {
    this.cancel();
    const { request } = this.form;
    const job = new ServerJob();
    this.job = job;
    this.busy(true);
    this.report("Sending the request\u2026", false);
    try {
      const input = { ...inputOf(request), image: await this.form.image() };
      const payload = await job.run(jobOf(input, request), (status) => this.showStatus(job, status));
      await this.explore(job, { request, input, payload });
      this.finish(job, "", false);
    } catch (error) {
      const given = error instanceof Cancelled;
      this.finish(job, error instanceof Error ? error.message : String(error), !given);
    }
  }

  private showStatus(job: ServerJob, status: Status): void {
    if (job !== this.job) return;
    if (status.stage === "waiting") {
      this.bar.removeAttribute("value");
      this.report(`Waiting: ${status.ahead} ahead in the queue`, false);
      return;
    }
    if (status.total > 0) this.bar.value = status.begun / (status.total + 1);
    this.report(status.total > 0 ? `Layer ${status.begun} of ${status.total}` : "Starting", false);
  }

  /** Replace the explorer, unless a later request has been submitted meanwhile. */
  private async explore(job: ServerJob, { request, input, payload }: Answer): Promise<void> {
    if (job !== this.job) return;
    this.close();
    this.close = () => undefined;
    const again = this.shown === "" || this.shown === formatAnalysisRequest(request);
    this.shown = formatAnalysisRequest(request);
    if (!again) this.write("");
    const holder = h("div", { class: "root inner" });
    this.stage.replaceChildren(holder);
    const name = phrase(request.text).slice(0, 60);
    document.title = name === "" ? "normscope" : `${name} \u00b7 normscope`;
    try {
      const close = await mount(holder, payload, this.hostOf(job.id, input));
      if (holder.isConnected) this.close = close;
      else close();
    } catch (error) {
      failure(this.stage, error);
    }
    this.write(withoutRequest(this.addressBar.readState()));
  }

  /** Write the address: the request and the state of the view. */
  private write(fragment: string): void {
    this.addressBar.writeState([this.shown, fragment].filter(Boolean).join("&"));
  }

  private hostOf(id: string, input: ServerInput): Host {
    const { addressBar } = this;
    const explains = this.form.model.task !== null;
    return {
      ...addressBar,
      readState: () => withoutRequest(addressBar.readState()),
      writeState: (fragment) => this.write(fragment),
      onState: (listener) => addressBar.onState!((fragment) => listener(withoutRequest(fragment))),
      exact: (request) => exact(id, request),
      ...(explains ? { explain: (request: ExplainRequest) => explained(input, request) } : {}),
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
    this.report(message, wrong);
  }

  private busy(busy: boolean): void {
    this.bar.hidden = !busy;
    this.form.stop.hidden = !busy;
    this.form.submit.hidden = busy;
  }

  private report(message: string, wrong: boolean): void {
    this.message.textContent = message;
    this.message.classList.toggle("wrong", wrong);
  }
}

function inputOf({ text, model, method, pair, reply }: AnalysisRequest): Omit<ServerInput, "image"> {
  return { text, model, method, pair, decoder_text: reply };
}

function jobOf(input: ServerInput, { other, heads }: AnalysisRequest): unknown {
  const second = other ? [{ ...other, pair: "", image: input.image }] : [];
  return { analyses: [input, ...second], heads };
}

async function explained(input: ServerInput, request: ExplainRequest): Promise<Payload["explanations"][number]> {
  const { text, model, pair, decoder_text, image } = input;
  const explain = { text, model, pair, decoder_text, image, ...request };
  const payload = await new ServerJob().run({ explain }, () => undefined);
  const [explanation] = payload.explanations;
  if (!explanation) throw new Error("The server returned no explanation.");
  return explanation;
}
