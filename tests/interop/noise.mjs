// Feature noise: Laplace noise, rounded, on the bytes of a model's `bytes` column.
import { expMinus, floorOf, fraction } from './exact.mjs';
import { exceeded, word } from './random.mjs';
import { columnWidth } from './columns.mjs';

/** P(noise, rounded, <= n) = P(noise < n + 1/2), for n = -255 ... 254. */
export function laplaceCuts({ epsilon, sensitivity }) {
  const [e, eUnder] = fraction(epsilon);
  const [s, sUnder] = fraction(sensitivity);
  const kept = new Map();
  return (bits) => {
    if (!kept.has(bits)) {
      const cuts = [];
      for (let n = -255; n <= 254; n++) {
        const halves = BigInt(Math.abs(2 * n + 1)); // |n + 1/2| epsilon / sensitivity = halves e sUnder / (2 eUnder s)
        const tail = (b) => expMinus(halves * e * sUnder, 2n * eUnder * s, b) >> 1n;
        cuts.push(floorOf(n < 0 ? tail : (b) => (1n << BigInt(b)) - tail(b), bits));
      }
      kept.set(bits, cuts);
    }
    return kept.get(bits);
  };
}

const cutsOf = new WeakMap(); // 510 exponentials are worth keeping for all records of a model

/** The encoded columns with noise on their bytes; unchanged if the model declares none. */
export function addFeatureNoise(model, columns, random) {
  if (model.feature_noise === null) return columns;
  if (!cutsOf.has(model)) cutsOf.set(model, laplaceCuts(model.feature_noise));
  const cuts = cutsOf.get(model);
  const noisy = Uint8Array.from(columns);
  let at = 0;
  for (const column of model.columns) {
    const width = columnWidth(column);
    if (column.kind === 'bytes') {
      // A word for every byte first: what more is needed follows on all of them.
      const words = Array.from({ length: width }, () => word(random));
      words.forEach((drawn, i) => {
        noisy[at + i] = Math.min(255, Math.max(0, columns[at + i] - 255 + exceeded(random, cuts, drawn)));
      });
    }
    at += width;
  }
  return noisy;
}
