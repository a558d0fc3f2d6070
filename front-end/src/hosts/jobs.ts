/** Work on the server: sent, followed until it is done, failed or given up, and its result. */
import type { Payload } from "../model/payload";
import type { ExactRequest } from "./host";

export interface Status {
  stage: "waiting" | "running" | "done" | "failed" | "cancelled";
  ahead: number;
  begun: number;
  total: number;
  message: string;
}

/** One piece of work; `cancel` may be called at any time. */
export class ServerJob {
  id = "";
  private source: EventSource | null = null;
  private over = false;
  private give: (error: Error) => void = () => undefined;

  /** Send it and wait for its result. Rejected with what the server says against it. */
  async run(content: unknown, tell: (status: Status) => void): Promise<Payload> {
    this.id = await this.send(content);
    if (this.over) {
      this.forget();
      throw new Cancelled();
    }
    await this.follow(tell);
    const answer = await fetch(`/api/jobs/${this.id}/result`);
    if (!answer.ok) throw new Error("The server has forgotten this analysis: ask for it again.");
    return (await answer.json()) as Payload;
  }

  cancel(): void {
    if (this.over) return;
    this.over = true;
    this.source?.close();
    if (this.id !== "") this.forget();
    this.give(new Cancelled());
  }

  private forget(): void {
    void fetch(`/api/jobs/${this.id}`, { method: "DELETE" }).catch(() => undefined);
  }

  private async send(content: unknown): Promise<string> {
    const answer = await fetch("/api/jobs", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(content),
    }).catch(() => {
      throw new Error("The server does not answer. Is it still running?");
    });
    const said = (await answer.json()) as { id?: string; error?: string };
    if (!answer.ok || said.id === undefined) throw new Error(said.error ?? "The server refused.");
    return said.id;
  }

  private follow(tell: (status: Status) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      const source = new EventSource(`/api/jobs/${this.id}/events`);
      const end = (act: () => void): void => {
        this.over = true;
        source.close();
        act();
      };
      this.source = source;
      this.give = reject;
      source.addEventListener("message", (event) => {
        const status = JSON.parse(String(event.data)) as Status;
        if (status.stage === "done") end(resolve);
        else if (status.stage === "failed") end(() => reject(new Error(status.message)));
        else if (status.stage === "cancelled") end(() => reject(new Cancelled()));
        else tell(status);
      });
      source.addEventListener("error", () => {
        if (source.readyState === EventSource.CLOSED)
          end(() => reject(new Error("The connection to the server was lost.")));
      });
    });
  }
}

export class Cancelled extends Error {
  constructor() {
    super("Cancelled.");
  }
}

export async function exact(id: string, request: ExactRequest): Promise<Float32Array> {
  const query = new URLSearchParams(Object.entries(request).map(([name, value]) => [name, String(value)]));
  const answer = await fetch(`/api/jobs/${id}/exact?${query}`);
  if (!answer.ok) throw new Error("the server no longer has this analysis");
  return new Float32Array(await answer.arrayBuffer());
}
