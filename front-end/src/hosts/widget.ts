/** The notebook's side of a widget: state in a trait of the model, exact values and windows by message from the kernel. */
import { failure } from "../explorer";
import { Lifetime } from "../lifetime";
import type { Payload } from "../model/payload";
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

/** Show the widget in an element; anywidget calls the function that this gives when the view goes away. */
export async function render({ model, el }: { model: WidgetModel; el: HTMLElement }): Promise<() => void> {
  const life = new Lifetime();
  const root = shadow(el);
  try {
    life.atEnd(await mount(root, JSON.parse(String(model.get("payload"))) as Payload, widgetHost(model, life)));
  } catch (error) {
    failure(root, error);
  }
  return () => life.end();
}

function widgetHost(model: WidgetModel, life: Lifetime): Host {
  let asked = 0;
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
    exact: async (request) => new Float32Array(await ask(model, life, { id: ++asked, kind: "exact", ...request })),
    window: async (place) => {
      const answer = await ask(model, life, { id: ++asked, kind: "window", ...place });
      return JSON.parse(new TextDecoder().decode(answer)) as WindowPayload;
    },
  };
}

/** One message to the kernel and its answer; given up when the kernel is silent or the view goes away. */
function ask(model: WidgetModel, life: Lifetime, request: { id: number; kind: string }): Promise<ArrayBuffer> {
  return new Promise((resolve, reject) => {
    const waiting = new Lifetime();
    const give = (up: string): void => {
      waiting.end();
      reject(new Error(up));
    };
    const answer = (content: { id?: number; error?: string }, buffers: DataView[]): void => {
      if (content.id !== request.id) return;
      waiting.end();
      const bytes = buffers[0];
      if (content.error !== undefined || !bytes) reject(new Error(content.error ?? "the kernel gave no values"));
      else resolve(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength).slice().buffer);
    };
    const timer = window.setTimeout(() => give("the kernel does not answer"), PATIENCE);
    waiting.atEnd(() => window.clearTimeout(timer));
    waiting.atEnd(() => model.off("msg:custom", answer as never));
    life.atEnd(() => give("the view has gone"));
    model.on("msg:custom", answer as never);
    model.send(request);
  });
}
