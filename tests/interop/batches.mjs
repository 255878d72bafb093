// Batches: which records the helpers draw for a step, from the seed that they share.
import { createCipheriv } from 'node:crypto';
import { sha256 } from '@noble/hashes/sha2.js';
import { concat, number, utf8 } from './bytes.mjs';
import { fraction } from './exact.mjs';
import { word } from './random.mjs';

const range = (n) => Array.from({ length: n }, (_, i) => i);
const ascending = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
const withLength = (text) => concat(number(utf8(text).length, 4), utf8(text));

/** The stream of a draw: a function count -> bytes, as those of random.mjs. */
export function stream(seed, kind, tag, slot, records) {
  const key = sha256(
    concat(utf8('maskedlark v2 batch'), seed, withLength(kind), withLength(tag), number(slot, 8), number(records, 8)),
  );
  const cipher = createCipheriv('chacha20', key, new Uint8Array(16)); // counter and nonce
  return (count) => new Uint8Array(cipher.update(new Uint8Array(count)));
}

/** Records that are held out. */
export function heldOut(seed, tag, records, share) {
  const words = stream(seed, 'held out', tag, 0, records);
  const [over, under] = fraction(share);
  const limit = (over << 64n) / under;
  return range(records).filter(() => word(words) < limit);
}

/** An epoch's batches: as even as can be, the longer ones first, each ascending. */
export function partition(seed, tag, slot, records, count) {
  const words = stream(seed, 'partition', tag, slot, records);
  const sorted = range(records).map((row) => ({ row, drawn: word(words) })).sort((a, b) => ascending(a.drawn, b.drawn));
  const batches = [];
  for (let at = 0; batches.length < count; ) {
    const size = Math.ceil((records - at) / (count - batches.length));
    batches.push(sorted.slice(at, (at += size)).map(({ row }) => row).sort(ascending));
  }
  return batches;
}

/** P(Binomial(n, q) <= j) for j = 0, 1, ..., each times `whole`: exact, because a float's denominator is a power of two. */
function* cumulated(n, q) {
  const [over, under] = fraction(q);
  let term = (under - over) ** BigInt(n);
  let sum = 0n;
  for (let j = 0n; j <= BigInt(n); j++) {
    yield (sum += term);
    term = (term * (BigInt(n) - j) * over) / ((j + 1n) * (under - over)); // nothing remains
  }
}

const wholeOf = (n, q) => fraction(q)[1] ** BigInt(n);

/** The least number that Binomial(n, q) exceeds with a probability of 2^-64 at most. */
export function largest(n, q) {
  const whole = wholeOf(n, q);
  let j = 0;
  for (const sum of cumulated(n, q)) {
    if ((whole - sum) << 64n <= whole) return j;
    j++;
  }
}

/** How many records a batch has: how many floors of 2^128 P(Binomial <= j) are at most u. */
function size(n, q, u) {
  const whole = wholeOf(n, q);
  let count = 0;
  for (const sum of cumulated(n, q)) {
    if ((sum << 128n) / whole > u) break;
    count++;
  }
  return count;
}

/** The first `count` different rows of a stream. */
function firstRows(words, n, count) {
  const end = (1n << 64n) - ((1n << 64n) % BigInt(n));
  const rows = new Set();
  while (rows.size < count) {
    const drawn = word(words);
    if (drawn < end) rows.add(Number(drawn % BigInt(n)));
  }
  return [...rows];
}

/** A Poisson batch, ascending, the rows that it is taken from, and how many it may have. */
export function poisson(seed, tag, slot, n, q) {
  if (q === 1) return { batch: range(n), rows: range(n), room: n };
  const words = stream(seed, 'poisson', tag, slot, n);
  const low = word(words);
  const m = size(n, q, (word(words) << 64n) | low);
  const room = largest(n, q);
  if (2 * room <= n) {
    const rows = firstRows(words, n, room);
    return { batch: rows.slice(0, m).sort(ascending), rows, room };
  }
  const half = firstRows(words, n, Math.ceil(n / 2));
  const left = new Set(half.slice(0, n - m));
  const batch = 2 * m > n ? range(n).filter((row) => !left.has(row)) : half.slice(0, m).sort(ascending);
  return { batch, rows: range(n), room };
}
