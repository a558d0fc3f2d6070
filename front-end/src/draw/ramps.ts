/** Colour maps of matplotlib at 17 even steps. What is between two steps is within 5 of 255 of the map itself. */
export const MAGMA = ramp(
  "0000040a08221d114736106b51127c6a1c818326819c2e7fb73779d0416fe75263f56b5cfc8961fea772fec488fde2a3fcfdbf",
);
export const VIRIDIS = ramp(
  "44015448186a472d7b4240863b528b33638d2c728e26828e21918c1fa08828ae803fbc735ec96284d44baddc30d8e219fde725",
);
export const CIVIDIS = ramp(
  "002051012b6511366c26426e3c4d6e51586e62646f7270717f7c758c88779a9478a9a177bbaf71cebd68e2cb5cf3da4ffdea45",
);
export const GREYS = ramp(
  "fffffff7f7f7efefefe4e4e4d8d8d8cbcbcbbbbbbba9a9a99797978585857373736262625050503b3b3b262626131313000000",
);

function ramp(steps: string): string[] {
  return steps.match(/.{6}/gu)!.map((hex) => `#${hex}`);
}
