// Draws on a stream of bytes. A stream is a function count -> bytes: the system's, or a vector's.
import { littleEndian } from './bytes.mjs';

export const system = (count) => crypto.getRandomValues(new Uint8Array(count));

/** Recorded bytes; `left()` says how many were not used. */
export function recorded(bytes) {
  let at = 0;
  const stream = (count) => {
    if (at + count > bytes.length) throw new Error('the recorded bytes are used up');
    at += count;
    return bytes.slice(at - count, at);
  };
  stream.left = () => bytes.length - at;
  return stream;
}

export const word = (random) => littleEndian(random(8));

export function below(random, n) {
  n = BigInt(n);
  const mask = n === 1n ? 0n : (1n << BigInt((n - 1n).toString(2).length)) - 1n;
  for (;;) {
    const drawn = word(random) & mask;
    if (drawn < n) return drawn;
  }
}

/** How many of some ascending numbers in [0, 1) a uniform number exceeds, exactly. cuts(bits) gives floor(2^bits * number)
 *  for each: as long as the bits drawn equal those of a cut, the next word decides. `drawn` is the first word. */
export function exceeded(random, cuts, drawn = word(random)) {
  for (let bits = 64; ; bits += 64) {
    const list = cuts(bits);
    let low = 0;
    for (let high = list.length; low < high; ) {
      const middle = (low + high) >> 1;
      if (list[middle] < drawn) low = middle + 1;
      else high = middle;
    }
    if (list[low] !== drawn) return low;
    drawn = (drawn << 64n) | word(random);
  }
}
