import { expect, it, vi } from "vitest";
import { Lifetime } from "../src/lifetime";

it("a lifetime ends all that began in it, once", () => {
  const [life, target] = [new Lifetime(), new EventTarget()];
  const [called, ended] = [vi.fn(), vi.fn()];
  life.listen(target, "changed", called);
  life.onEnd(ended);
  target.dispatchEvent(new Event("changed"));
  life.end();
  life.end();
  target.dispatchEvent(new Event("changed"));
  expect(called).toHaveBeenCalledTimes(1);
  expect(ended).toHaveBeenCalledTimes(1);
  expect(life.ended).toBe(true);
});

it("what comes after the end is ended at once", () => {
  const life = new Lifetime();
  const ended = vi.fn();
  life.end();
  life.onEnd(ended);
  expect(ended).toHaveBeenCalledTimes(1);
});
