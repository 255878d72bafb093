// Additive shares: seeds for helpers 1 ... N - 1, the rest of the secret for helper 0.
import { shake128 } from '@noble/hashes/sha3.js';
import { concat, littleEndian, utf8 } from './bytes.mjs';
import { P, element } from './field.mjs';

const LABEL = utf8('maskedlark v2 share');

export function shareOfSeed(purpose, helper, reportId, seed, count) {
  const stream = shake128.create().update(concat(LABEL, [purpose, helper], reportId, seed));
  const share = [];
  while (share.length < count) {
    const x = littleEndian(stream.xof(8)) & P; // upper three bits cleared
    if (x !== P) share.push(x);
  }
  return share;
}

/** Helper 0's share, given everybody else's seeds. */
export function firstShare(purpose, reportId, secret, seeds) {
  const others = seeds.map((seed, i) => shareOfSeed(purpose, i + 1, reportId, seed, secret.length));
  return secret.map((x, j) => element(others.reduce((rest, share) => rest - share[j], x)));
}
