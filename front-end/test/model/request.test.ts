import { expect, test } from "vitest";
import { formatRequest, parseRequest } from "../../src/model/request";

test("a request is read back from the address", () => {
  for (const request of [
    { label: 12, against: null, at: 3 },
    { label: " Juana", against: "[,]", at: null },
    { label: null, against: null, at: null },
  ]) {
    expect(parseRequest(formatRequest(request))).toEqual(request);
  }
});

test("what is no request is none", () => {
  for (const text of ["", "nonsense", "{}", "[1,2]", "[1.5,null,null]", "[1,2,3]", '[1,null,"x"]']) {
    expect(parseRequest(text)).toBeNull();
  }
});
