// From a conversion's values to what helpers see: labels, quantising, randomised response, candidates.
import { expMinus, floorOf, fraction } from './exact.mjs';
import { below, exceeded, unit } from './random.mjs';

const cut = (x, low, high) => Math.min(Math.max(x, low), high);
const range = (low, high) => Array.from({ length: high - low + 1 }, (_, i) => low + i);
const valueOf = (values, name) => (Object.hasOwn(values, name) ? values[name] : 0); // a value may be called `constructor`
const byNumber = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/** Boundary i of a label's buckets: its whole part, rounded down, and the remainder over `buckets`. */
function boundary({ low, high, buckets }, i) {
  const k = BigInt(buckets);
  const over = BigInt(low) * k + BigInt(high - low) * BigInt(i);
  const remainder = ((over % k) + k) % k;
  return { whole: Number((over - remainder) / k), remainder };
}

/** The label space, ascending. */
export function labelSpace(label) {
  if (label.kind === 'binary') return [0, 1];
  if (label.kind === 'categorical') return range(0, label.classes - 1);
  if (label.kind === 'integers') return range(label.low, label.high);
  const space = new Set();
  for (let i = 0; i <= label.buckets; i++) {
    const { whole, remainder } = boundary(label, i);
    space.add(whole);
    if (remainder > 0n) space.add(whole + 1);
  }
  return [...space].sort(byNumber);
}

/** Declared values in the document's order, cut; 0 without a conversion. */
export const cutValues = (declared, values) =>
  declared.map(({ name, low, high }) => cut(valueOf(values, name), Math.min(low, 0), Math.max(high, 0)));

/** The label of a record, before it is quantised: of a declared value, as it is cut there. */
export function trueLabel(label, declared, values, conversions) {
  if (label.value === null) return conversions > 0 ? 1 : 0;
  const value = cutValues(declared, values)[declared.findIndex(({ name }) => name === label.value)];
  if (label.kind === 'binary') return value > 0 ? 1 : 0;
  return label.kind === 'categorical' ? cut(value, 0, label.classes - 1) : cut(value, label.low, label.high);
}

/** Rounds at random to a boundary, and that to an integer, so that the mean is kept. Draws twice, whatever y is. */
export function quantise(label, y, random) {
  const t = ((y - label.low) * label.buckets) / (label.high - label.low);
  const i = Math.floor(t);
  const { whole, remainder } = boundary(label, unit(random) < t - i ? i + 1 : i);
  return below(random, label.buckets) < remainder ? whole + 1 : whole;
}

/** The probability k / (e^epsilon + k - 1) with which a label is replaced, as a cut point. */
export function replacedCut(size, epsilon) {
  const k = BigInt(size);
  const [e, under] = fraction(epsilon);
  const probability = (bits) => {
    const shrunk = expMinus(e, under, bits); // both sides times e^-epsilon: k s / (1 + (k - 1) s)
    return ((k * shrunk) << BigInt(bits)) / ((1n << BigInt(bits)) + (k - 1n) * shrunk);
  };
  return (bits) => [floorOf(probability, bits)];
}

/** Randomised response: replaces a label by any member of the space. Draws twice, whatever y is. */
export function respond(space, y, epsilon, random) {
  const kept = exceeded(random, replacedCut(space.length, epsilon)) === 1;
  const other = space[Number(below(random, space.length))];
  return kept ? y : other;
}

export const shownCount = (model, space) => ({ all: space.length, pair: 2, sample: model.sample })[model.candidates];

/** The candidates shown for label y, in order, as members of the space. */
export function candidates({ candidates: policy, sample }, space, y, random) {
  if (policy === 'all') return space;
  if (policy === 'pair') {
    const drawn = space.filter((x) => x !== 0)[Number(below(random, space.length - 1))];
    const pair = [0, y === 0 ? drawn : y];
    return below(random, 2) === 1n ? pair.reverse() : pair;
  }
  // A rank is drawn for every member, also for those that are shown anyway. Sorting is stable: equal ranks stay ascending.
  const ranked = space.map((x) => {
    const rank = below(random, 1n << 62n);
    return { x, rank: x === 0 || x === y ? -1n : rank };
  });
  const shown = ranked.sort((a, b) => byNumber(a.rank, b.rank)).slice(0, sample).map(({ x }) => x).sort(byNumber);
  const order = shown.map((x) => ({ x, rank: below(random, 1n << 62n) }));
  return order.sort((a, b) => byNumber(a.rank, b.rank)).map(({ x }) => x);
}

/** All draws of a model's labels: candidates and the secret. A fake makes the draws of label 0 and shows the candidates of
 *  0, whatever its randomised response was; its secret is all 0. */
export function drawLabels(model, labels, real, random) {
  const shown = [];
  const secret = [];
  model.labels.forEach((label, i) => {
    const space = labelSpace(label);
    let y = real ? labels[i] : 0;
    if (label.kind === 'reals') y = quantise(label, y, random);
    if (model.randomised_response !== null) y = respond(space, y, model.randomised_response.epsilon, random);
    const these = candidates(model, space, real ? y : 0, random);
    shown.push(these);
    secret.push(...these.map((x) => (real && x === y ? 1n : 0n)));
  });
  return { candidates: shown, secret };
}
