// Cells: how many records of each label are in each cell of a partition of feature space.
import { sha256 } from '@noble/hashes/sha2.js';
import { concat, toBigInt, utf8 } from './bytes.mjs';
import { element } from './field.mjs';
import { forward } from './network.mjs';

/** The cell of a record, by kind; `layers` may be null where cells do not look at outputs. */
export function cellOf(cells, layers, features) {
  if (cells.kind === 'hash') {
    const digest = sha256(concat(utf8('maskedlark v2 cell'), cells.features.map((place) => features[place])));
    return Number(toBigInt(digest.subarray(0, 8)) % BigInt(cells.count));
  }
  const { numbers, exponent } = forward(layers, features).output;
  if (cells.kind === 'buckets') {
    const z = Number(numbers[cells.output]) * 2 ** -Number(exponent); // fewer than 53 bits
    return cells.edges.filter((edge) => edge <= z).length;
  }
  const seen = numbers.slice(cells.first, cells.first + cells.count);
  return seen.indexOf(seen.reduce((most, z) => (z > most ? z : most)));
}

const countOf = ({ kind, edges, count }) => (kind === 'buckets' ? edges.length + 1 : count);

/** A helper's share of a table. `places`: each record's cell; `shown` its candidates, `shares` those of their masks. */
export function tableOf({ cells, ones }, space, places, shown, shares) {
  const width = ones ? 1 : space.length;
  const sums = Array(countOf(cells) * width).fill(0n);
  places.forEach((cell, record) =>
    shown[record].forEach((y, l) => {
      if (ones) sums[cell] += y === 1 ? shares[record][l] : 0n;
      else sums[cell * width + space.indexOf(y)] += shares[record][l];
    }));
  return sums.map(element);
}
