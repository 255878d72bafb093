// The proof that a report's secrets are bits, and its check: interpolation over bigints, as the page has it.
import { shake128 } from '@noble/hashes/sha3.js';
import { concat, littleEndian, utf8 } from './bytes.mjs';
import { P, element } from './field.mjs';
import { labelSpace, shownCount } from './labels.mjs';

const LABEL = utf8('maskedlark v2 check');
const range = (from, to) => Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => from + i);

function power(x, e) {
  let result = 1n;
  for (let square = element(x); e > 0n; e >>= 1n, square = (square * square) % P) if (e & 1n) result = (result * square) % P;
  return result;
}

const inverse = (x) => power(x, P - 2n);

/** The polynomial through points (x, y), at another x. */
export function interpolate(points, at) {
  let sum = 0n;
  for (const [x, y] of points) {
    let over = element(y);
    let under = 1n;
    for (const [other] of points) {
      if (other === x) continue;
      over = (over * element(at - BigInt(other))) % P;
      under = (under * element(BigInt(x - other))) % P;
    }
    sum += over * inverse(under);
  }
  return sum % P;
}

/** The weights of a value's bits: powers of two, then what reaches the largest value. */
export function weightsOf({ low, high }) {
  let left = BigInt(Math.max(high, 0)) - BigInt(Math.min(low, 0));
  const weights = [];
  for (let power = 1n; left > 0n; left -= weights.at(-1), power *= 2n) weights.push(power < left ? power : left);
  return weights;
}

/** The bits of a value: the last weight is used where the others do not reach. */
export function bitsOf(declared, value) {
  const powers = weightsOf(declared).slice(0, -1);
  let left = BigInt(value) - BigInt(Math.min(declared.low, 0));
  const last = left > (1n << BigInt(powers.length)) - 1n;
  if (last) left -= weightsOf(declared).at(-1);
  const bits = powers.map((_, i) => (left >> BigInt(i)) & 1n);
  return weightsOf(declared).length === 0 ? [] : [...bits, last ? 1n : 0n];
}

/** How many masks each label of a model has. */
export const maskCounts = (model) => model.labels.map((label) => shownCount(model, labelSpace(label)));

/** What has to be 0 or 1: the secret's numbers; for labels, also each label's sum. */
export function numbersToCheck(secret, counts) {
  if (counts === null) return secret;
  let at = 0;
  return counts.flatMap((count) => {
    const masks = secret.slice(at, (at += count));
    return [...masks, element(masks.reduce((sum, x) => sum + x, 0n))];
  });
}

/** u, and g = f (f - 1) at 0 and at M + 1 ... 2M. */
export function prove(numbers, u) {
  const m = numbers.length;
  const f = [[0, u], ...numbers.map((x, i) => [i + 1, x])];
  const g = [0, ...range(m + 1, 2 * m)].map((x) => interpolate(f, BigInt(x))).map((y) => element(y * (y - 1n)));
  return [u, ...g];
}

/** The point where a report is checked. */
export function challenge(key, reportId, m) {
  const stream = shake128.create().update(concat(LABEL, key, reportId));
  for (;;) {
    const t = littleEndian(stream.xof(8)) & P;
    if (t > BigInt(2 * m) && t < P) return t;
  }
}

/** What a helper publishes: its shares of f(t) and g(t). */
export function evaluate(numbers, [u, atZero, ...others], t) {
  const m = numbers.length;
  const f = [[0, u], ...numbers.map((x, i) => [i + 1, x])];
  const g = [[0, atZero], ...range(1, m).map((x) => [x, 0n]), ...others.map((y, i) => [m + 1 + i, y])];
  return [interpolate(f, t), interpolate(g, t)];
}

export function isValid(published) {
  const [f, g] = [0, 1].map((i) => element(published.reduce((sum, pair) => sum + pair[i], 0n)));
  return element(f * (f - 1n)) === g;
}
