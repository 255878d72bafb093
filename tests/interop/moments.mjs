// Moments: the sum over records of phi(x) t(y), in integers.
import { element } from './field.mjs';
import { forward } from './network.mjs';

const SIGMA = 1 + 2 ** -40;

/** phi of a record, the constant last, and its exponent. */
export function phi(layers, features) {
  const { numbers, exponent } = forward(layers, features).input;
  return { numbers: layers.at(-1).bias ? [...numbers, 1n << exponent] : numbers, exponent };
}

/** What a record's phi is multiplied with, so that its norm is at most the clip. */
export function factorOf({ numbers, exponent }, { clip, norm, fraction }) {
  const size = (x) => (norm === 'l2' ? x * x : x < 0n ? -x : x);
  const total = Number(numbers.reduce((sum, x) => sum + size(x), 0n));
  const most = 2 ** fraction;
  if (total === 0) return BigInt(most);
  const length = norm === 'l2' ? Math.sqrt(total) : total;
  return BigInt(Math.min(most, Math.floor((clip * 2 ** (Number(exponent) + fraction)) / (length * SIGMA))));
}

/** t(y) for every output of a label. */
const targets = ({ kind, classes }, y) =>
  kind === 'softmax' ? Array.from({ length: classes }, (_, j) => (j === y ? 1n : 0n)) : [BigInt(y)];

/** A helper's share of a label's moments. `rows`: f phi of each record; `shown` its candidates, `shares` those of their masks. */
export function momentsOf(loss, rows, shown, shares) {
  const outputs = loss.kind === 'softmax' ? loss.classes : 1;
  const sums = Array.from({ length: outputs }, () => rows[0].map(() => 0n));
  rows.forEach((row, record) =>
    shown[record].forEach((y, l) =>
      targets(loss, y).forEach((t, j) => row.forEach((x, i) => (sums[j][i] += shares[record][l] * t * x)))));
  return sums.flat().map(element);
}
