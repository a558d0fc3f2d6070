import { expect, it, vi } from "vitest";
import { Lifetime } from "../src/lifetime";

it("a lifetime ends all that began in it, once", () => {
  const [life, target] = [new Lifetime(), new EventTarget()];
  const [heard, ended] = [vi.fn(), vi.fn()];
  life.listen(target, "told", heard);
  life.atEnd(ended);
  target.dispatchEvent(new Event("told"));
  life.end();
  life.end();
  target.dispatchEvent(new Event("told"));
  expect(heard).toHaveBeenCalledTimes(1);
  expect(ended).toHaveBeenCalledTimes(1);
  expect(life.over).toBe(true);
});

it("what comes after the end is ended at once", () => {
  const life = new Lifetime();
  const ended = vi.fn();
  life.end();
  life.atEnd(ended);
  expect(ended).toHaveBeenCalledTimes(1);
});
