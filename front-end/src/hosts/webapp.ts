/** The web app: a form for requests, the progress of the job on the server, then the explorer. */
import { h } from "../draw/dom";
import { failure } from "../explorer";
import type { Payload, VerificationPayload } from "../model/payload";
import type { ExplainRequest } from "../model/request";
import { phrase } from "../model/tokens";
import { mount } from "../mount";
import { AnswerForm } from "./answerform";
import { Form, type ModelSettings, type Settings } from "./form";
import type { Host } from "./host";
import { Cancelled, exact, ServerJob, type Status } from "./jobs";
import {
  type AnalysisRequest,
  formatAnalysisRequest,
  formatAnswerRequest,
  formatSimilarityRequest,
  parseAnalysisRequest,
  parseAnswerRequest,
  parseSimilarityRequest,
  withoutRequest,
} from "./requests";
import { SimilarityForm } from "./similarityform";

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

/** What was requested and what came back. */
interface Answer {
  /** The request as it stands in the address. */
  address: string;
  title: string;
  payload: Payload;
  /** What else the host of this answer can do. */
  host: Partial<Host>;
}

/** Which of the forms is there: at the start all are. */
type Mode = "start" | "analysis" | "similarity" | "answer";

export class WebApp {
  private readonly form: Form;
  private readonly comparing: SimilarityForm;
  private readonly asking: AnswerForm;
  private readonly bar = h("progress", { max: 1, value: 0, hidden: true, "aria-label": "Progress" });
  private readonly message = h("p", { class: "message", role: "status" });
  private readonly stage = h("div", { class: "explorer-holder" });
  /** Ways from each form to the others. */
  private readonly links: HTMLElement[] = [];
  private job: ServerJob | null = null;
  private mode: Mode = "start";
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
    this.comparing = new SimilarityForm(settings, () => void this.compare());
    this.asking = new AnswerForm(settings, () => void this.answer());
    for (const form of [this.form, this.comparing, this.asking])
      form.stop.addEventListener("click", () => this.cancel());
    this.connect();
    this.welcome();
    this.show("start");
    root.replaceChildren(this.form.element, this.comparing.element, this.asking.element, this.stage);
    root.classList.add("webapp");
    this.form.focus();
    window.addEventListener("hashchange", () => this.openAddress());
    this.openAddress();
  }

  /** Submit the request of the address, unless it is already shown. */
  private openAddress(): void {
    const pair = parseSimilarityRequest(window.location.hash);
    if (pair && this.comparing.offered) {
      if (formatSimilarityRequest(pair) === this.shown) return;
      this.comparing.set(pair);
      if (pair.first !== "" && pair.second !== "") void this.compare();
      else this.show("similarity"); // an image is in no address
      return;
    }
    const asked = parseAnswerRequest(window.location.hash);
    if (asked && this.asking.offered) {
      if (formatAnswerRequest(asked) === this.shown) return;
      this.asking.set(asked);
      void this.answer();
      return;
    }
    const request = parseAnalysisRequest(window.location.hash);
    if (!request || formatAnalysisRequest(request) === this.shown) return;
    this.form.set(request);
    if (this.form.model.reads === "text") void this.submit();
  }

  private show(mode: Mode): void {
    this.mode = mode;
    for (const [own, form] of this.forms) form.element.hidden = !(mode === "start" || mode === own) || !offered(form);
    for (const element of this.links) element.hidden = mode === "start";
    const shown = mode === "start" ? this.form : this.forms.get(mode)!;
    shown.element.append(this.bar, this.message);
  }

  private get forms(): Map<Mode, Form | SimilarityForm | AnswerForm> {
    return new Map<Mode, Form | SimilarityForm | AnswerForm>([
      ["analysis", this.form],
      ["similarity", this.comparing],
      ["answer", this.asking],
    ]);
  }

  /** A link in every form to each of the others that there are. */
  private connect(): void {
    for (const [from, form] of this.forms) {
      for (const [to, other] of this.forms) {
        if (from === to || !offered(other)) continue;
        const element = link(`${NAMES[to]}\u2026`, () => this.show(to));
        form.element.querySelector(".options")!.append(element);
        this.links.push(element);
      }
    }
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
    const { request } = this.form;
    await this.run("analysis", async (job) => {
      const input = { ...inputOf(request), image: await this.form.image() };
      const payload = await job.run(jobOf(input, request), (status) => this.showStatus(job, status));
      name(job, payload);
      const explains = this.form.model.task !== null;
      const host: Partial<Host> = {
        exact: (wanted) => exact(job.id, wanted),
        verify: verified,
        ...(explains ? { explain: (wanted: ExplainRequest) => explained(input, wanted) } : {}),
      };
      return { address: formatAnalysisRequest(request), title: request.text, payload, host };
    });
  }

  private async compare(): Promise<void> {
    const { request } = this.comparing;
    await this.run("similarity", async (job) => {
      const similarity = { ...request, ...(await this.comparing.images()) };
      const payload = await job.run({ similarity }, (status) => this.showStatus(job, status));
      return { address: formatSimilarityRequest(request), title: request.first || request.second, payload, host: {} };
    });
  }

  private async answer(): Promise<void> {
    const { request } = this.asking;
    await this.run("answer", async (job) => {
      const payload = await job.run({ answer: request }, (status) => this.showStatus(job, status));
      return { address: formatAnswerRequest(request), title: request.question, payload, host: {} };
    });
  }

  private async run(mode: Mode, answer: (job: ServerJob) => Promise<Answer>): Promise<void> {
    this.cancel();
    this.show(mode);
    const job = new ServerJob();
    this.job = job;
    this.busy(true);
    this.report("Sending the request\u2026", false);
    try {
      await this.explore(job, await answer(job));
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
    const what = this.mode === "similarity" ? "Text" : "Layer";
    this.report(status.total > 0 ? `${what} ${status.begun} of ${status.total}` : "Starting", false);
  }

  /** Replace the explorer, unless a later request has been submitted meanwhile. */
  private async explore(job: ServerJob, { address, title, payload, host }: Answer): Promise<void> {
    if (job !== this.job) return;
    this.close();
    this.close = () => undefined;
    const again = this.shown === "" || this.shown === address;
    this.shown = address;
    if (!again) this.write("");
    const holder = h("div", { class: "root inner" });
    this.stage.replaceChildren(holder);
    const name = phrase(title).slice(0, 60);
    document.title = name === "" ? "normscope" : `${name} \u00b7 normscope`;
    try {
      const close = await mount(holder, payload, this.hostOf(host));
      if (holder.isConnected) this.close = close;
      else close();
    } catch (error) {
      failure(this.stage, error);
    }
    this.form.fold();
    this.write(withoutRequest(this.addressBar.readState()));
  }

  /** Write the address: the request and the state of the view. */
  private write(fragment: string): void {
    this.addressBar.writeState([this.shown, fragment].filter(Boolean).join("&"));
  }

  private hostOf(more: Partial<Host>): Host {
    const { addressBar } = this;
    return {
      ...addressBar,
      readState: () => withoutRequest(addressBar.readState()),
      writeState: (fragment) => this.write(fragment),
      onState: (listener) => addressBar.onState!((fragment) => listener(withoutRequest(fragment))),
      ...more,
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
    for (const form of this.forms.values()) {
      form.stop.hidden = !busy;
      form.submit.hidden = busy;
    }
  }

  private report(message: string, wrong: boolean): void {
    this.message.textContent = message;
    this.message.classList.toggle("wrong", wrong);
  }
}

const NAMES: Record<Mode, string> = {
  start: "",
  analysis: "Analyse one text",
  similarity: "Compare two texts",
  answer: "Ask about a context",
};

function offered(form: Form | SimilarityForm | AnswerForm): boolean {
  return form instanceof Form || form.offered;
}

function link(text: string, act: () => void): HTMLElement {
  return h("button", { type: "button", class: "link", click: act }, text);
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
  const job = new ServerJob();
  const payload = await job.run({ explain }, () => undefined);
  name(job, payload);
  const [explanation] = payload.explanations;
  if (!explanation) throw new Error("The server returned no explanation.");
  return explanation;
}

/** Explanations are known to the server by their job and their number in it. */
function name({ id }: ServerJob, { explanations }: Payload): void {
  for (const [index, explanation] of explanations.entries()) explanation.id = `${id}/${index}`;
}

function verified(id: string, target: number): Promise<VerificationPayload> {
  const [job, explanation] = id.split("/");
  const verify = { job, explanation: Number(explanation), target };
  return new ServerJob().run<VerificationPayload>({ verify }, () => undefined);
}
