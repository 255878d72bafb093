// The field of p = 2^61 - 1 elements, as bigints.
import { concat, littleEndian, need, number } from './bytes.mjs';

export const P = (1n << 61n) - 1n;

/** Signed integers stand for themselves mod p. */
export const element = (x) => ((BigInt(x) % P) + P) % P;

export const encodeElements = (elements) => concat(...elements.map((x) => number(x, 8).reverse()));

export function decodeElements(bytes) {
  const elements = [];
  for (let at = 0; at < bytes.length; at += 8) {
    const x = littleEndian(bytes.subarray(at, at + 8));
    need(x < P, 'NotInField', 'a field element of p or more');
    elements.push(x);
  }
  return elements;
}
