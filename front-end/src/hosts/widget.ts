/** The notebook's side of a widget: state in a trait of the model, exact values and windows by message from the kernel. */
import { failure } from "../explorer";
import { Lifetime } from "../lifetime";
import type { Payload, VerificationPayload } from "../model/payload";
import type { WindowPayload } from "../model/window";
import { mount } from "../mount";
import type { Host } from "./host";
import { shadow } from "./shadow";

export interface WidgetModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, listener: (...values: never[]) => void): void;
  off(event: string, listener: (...values: never[]) => void): void;
  send(content: unknown): void;
}

const PATIENCE = 20_000;
/** For what runs the model again. */
const LONG_PATIENCE = 600_000;

/** Show the widget in an element; anywidget calls the returned function when the view is closed. */
export async function render({ model, el }: { model: WidgetModel; el: HTMLElement }): Promise<() => void> {
  const life = new Lifetime();
  const root = shadow(el);
  try {
    life.onEnd(await mount(root, JSON.parse(String(model.get("payload"))) as Payload, widgetHost(model, life)));
  } catch (error) {
    failure(root, error);
  }
  return () => life.end();
}

function widgetHost(model: WidgetModel, life: Lifetime): Host {
  let requests = 0;
  const readState = (): string => String(model.get("state") ?? "");
  return {
    readState,
    writeState: (fragment) => {
      model.set("state", fragment);
      model.save_changes();
    },
    onState: (listener) => {
      const changed = (): void => listener(readState());
      model.on("change:state", changed);
      return () => model.off("change:state", changed);
    },
    exact: async (request) => new Float32Array(await send(model, life, { id: ++requests, kind: "exact", ...request })),
    window: async (start) =>
      parsed<WindowPayload>(await send(model, life, { id: ++requests, kind: "window", ...start })),
    verify: async (explanation, target) => {
      const request = { id: ++requests, kind: "verify", explanation: Number(explanation), target };
      return parsed<VerificationPayload>(await send(model, life, request, LONG_PATIENCE));
    },
  };
}

function parsed<Content>(answer: ArrayBuffer): Content {
  return JSON.parse(new TextDecoder().decode(answer)) as Content;
}

/** One message to the kernel and its answer; given up when the kernel is silent or the view goes away. */
function send(
  model: WidgetModel,
  life: Lifetime,
  request: { id: number; kind: string },
  patience = PATIENCE,
): Promise<ArrayBuffer> {
  return new Promise((resolve, reject) => {
    const waiting = new Lifetime();
    const fail = (message: string): void => {
      waiting.end();
      reject(new Error(message));
    };
    const answer = (content: { id?: number; error?: string }, buffers: DataView[]): void => {
      if (content.id !== request.id) return;
      waiting.end();
      const bytes = buffers[0];
      if (content.error !== undefined || !bytes) reject(new Error(content.error ?? "the kernel sent no values"));
      else resolve(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength).slice().buffer);
    };
    const timer = window.setTimeout(() => fail("the kernel does not respond"), patience);
    waiting.onEnd(() => window.clearTimeout(timer));
    waiting.onEnd(() => model.off("msg:custom", answer as never));
    life.onEnd(() => fail("the view was closed"));
    model.on("msg:custom", answer as never);
    model.send(request);
  });
}
