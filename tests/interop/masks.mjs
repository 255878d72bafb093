// Masks of answers: what every helper adds to its share, so that an answer means nothing alone.
import { sha256 } from '@noble/hashes/sha2.js';
import { concat, littleEndian, number, utf8 } from './bytes.mjs';
import { P, element } from './field.mjs';

const CHUNK = 4096; // bytes of keystream at once

const withLength = (bytes) => concat(number(bytes.length, 8), bytes);

/** A part of the key: bytes, or a list that holds its own. */
const part = (x) => withLength(Array.isArray(x) ? concat(...x.map(withLength)) : x);

export const maskKey = (seeds, bound) => sha256(concat(utf8('maskedlark v2 answer mask key'), ...[seeds, ...bound].map(part)));

/** The keystream of AES-256-CTR from block `first` on. */
async function keystream(key, first, length) {
  const imported = await crypto.subtle.importKey('raw', key, 'AES-CTR', false, ['encrypt']);
  const algorithm = { name: 'AES-CTR', counter: number(first, 16), length: 128 };
  return new Uint8Array(await crypto.subtle.encrypt(algorithm, imported, new Uint8Array(length)));
}

/** Mask i of a key, i = 1 ... N - 1. */
export async function maskOf(key, i, count) {
  const own = sha256(concat(utf8('maskedlark v2 answer mask'), key, number(i, 2)));
  const mask = [];
  for (let block = 0; mask.length < count; block += CHUNK / 16) {
    const bytes = await keystream(own, block, CHUNK);
    for (let at = 0; at < CHUNK && mask.length < count; at += 8) {
      const x = littleEndian(bytes.subarray(at, at + 8)) & P; // upper three bits cleared
      if (x !== P) mask.push(x);
    }
  }
  return mask;
}

/** What the helper at a place sends: helper 0 subtracts all masks, every other adds its own. */
export async function masked(answer, key, place, helpers) {
  const others = Array.from({ length: helpers - 1 }, (_, i) => i + 1);
  const masks = await Promise.all((place === 0 ? others : [place]).map((i) => maskOf(key, i, answer.length)));
  return answer.map((x, j) => element(masks.reduce((sum, mask) => (place === 0 ? sum - mask[j] : sum + mask[j]), x)));
}
