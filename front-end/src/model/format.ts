/** Numbers as people read them. */
import { format } from "d3-format";

const small = format(".2~e");
const three = format(".3~r");
const percent = format(".1%");

/** About three digits. */
export function number(value: number): string {
  if (Number.isNaN(value)) return "\u2013";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size < 0.001 ? small(value) : size >= 1000 ? Math.round(value).toLocaleString("en") : three(value);
}

export function share(value: number): string {
  return Number.isNaN(value) ? "\u2013" : percent(value);
}

/** A cell's value: shares as percentages, differences with their sign. */
export function cell(value: number, norm: string, signed: boolean): string {
  const text = norm === "none" ? number(value) : share(value);
  return signed && value > 0 ? `+${text}` : text;
}

/** A bound on an error, as one digit that is not too small: "2e-6". */
export function bound(value: number): string {
  if (value === 0) return "the last digit";
  const power = 10 ** Math.floor(Math.log10(value) + 1e-9);
  return format(".0e")(Math.ceil(value / power - 1e-6) * power);
}

export function error(value: number): string {
  return format(".1e")(value);
}

/** A small share that something may be off by. */
export function tolerance(value: number): string {
  return `${format(".1~r")(100 * value)} %`;
}

/** A signed value to be added up with others below and above it: with as many digits. */
export function addend(value: number): string {
  return format("+.3f")(value);
}

/** A signed value. */
export function signed(value: number): string {
  const text = number(value);
  return value > 0 ? `+${text}` : text;
}
