// From a conversion's values to what helpers see: labels, quantising, randomised response, candidates.
import { need } from './bytes.mjs';
import { expMinus, floorOf, fraction } from './exact.mjs';
import { below, exceeded, word } from './random.mjs';

const ONE = 1_000_000_000n; // values are bigints in billionths
const LARGEST = BigInt(Number.MAX_SAFE_INTEGER) * ONE;

const cut = (x, low, high) => (x < low ? low : x > high ? high : x);
const range = (low, high) => Array.from({ length: high - low + 1 }, (_, i) => low + i);
const byNumber = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/** The quotient rounded down, and the remainder, for a denominator over 0. */
function divide(numerator, denominator) {
  const remainder = ((numerator % denominator) + denominator) % denominator;
  return [(numerator - remainder) / denominator, remainder];
}

/** A decimal number or its text, in billionths: of a float, the decimal that it prints as. */
export function billionths(x) {
  const found = /^(-?\d+)(?:\.(\d+))?(?:e([+-]\d{1,2}))?$/.exec(String(x));
  need(found && typeof x !== 'object', 'OutOfRange', 'a value that is not a decimal number');
  const [, whole, places = '', exponent = '0'] = found;
  const shift = 9 - places.length + Number(exponent);
  const digits = BigInt(whole + places) * 10n ** BigInt(Math.max(shift, 0));
  const [billions, rest] = divide(digits, 10n ** BigInt(Math.max(-shift, 0)));
  const good = rest === 0n && cut(billions, -LARGEST, LARGEST) === billions;
  need(good, 'OutOfRange', 'a value of over nine digits after the point, or over 53 bits before it');
  return billions;
}

/** What conversions add up to, by name. */
export function attributed(conversions) {
  const sums = new Map(); // a value may be called `constructor`
  for (const [name, x] of conversions.flatMap((values) => Object.entries(values))) {
    sums.set(name, (sums.get(name) ?? 0n) + billionths(x));
  }
  return sums;
}

/** A fraction rounded at random, keeping the mean: up if uniform binary digits, 64 a word, are below those of the fraction. */
function roundFraction(numerator, denominator, random) {
  let [whole, rest] = divide(numerator, denominator);
  for (;;) {
    rest = (rest << 64n) - word(random) * denominator;
    if (rest <= 0n) return whole;
    if (rest >= denominator) return whole + 1n;
  }
}

/** A value as an integer. Draws nothing if it is one. */
export const rounded = (x, random) => Number(x % ONE === 0n ? x / ONE : roundFraction(x, ONE, random));

/** Boundary i of a label's buckets: its whole part, rounded down, and the remainder over `buckets`. */
function boundary({ low, high, buckets }, i) {
  const k = BigInt(buckets);
  const [whole, remainder] = divide(BigInt(low) * k + BigInt(high - low) * BigInt(i), k);
  return { whole: Number(whole), remainder };
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

const within = (x, low, high) => cut(x, BigInt(low) * ONE, BigInt(high) * ONE);

/** Declared values in the document's order, cut; 0 without a conversion. */
export const cutValues = (declared, values) =>
  declared.map(({ name, low, high }) => within(values.get(name) ?? 0n, Math.min(low, 0), Math.max(high, 0)));

/** The label of a record, before it is rounded or quantised: of a declared value, as it is cut there. */
export function trueLabel(label, declared, values, conversions) {
  if (label.value === null) return conversions > 0 ? ONE : 0n;
  const value = cutValues(declared, values)[declared.findIndex(({ name }) => name === label.value)];
  if (label.kind === 'binary') return value > 0n ? ONE : 0n;
  return label.kind === 'categorical' ? within(value, 0, label.classes - 1) : within(value, label.low, label.high);
}

/** Rounds at random to a boundary, and that to an integer, so that the mean is kept. Both draws are made, whatever y is. */
export function quantise(label, y, random) {
  const numerator = (y - BigInt(label.low) * ONE) * BigInt(label.buckets);
  const { whole, remainder } = boundary(label, roundFraction(numerator, BigInt(label.high - label.low) * ONE, random));
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

/** All draws of a model's labels, and what they give: candidates and the secret. All labels are rounded before anything else.
 *  A fake makes the draws of label 0 and shows the candidates of 0, whatever its randomised response was; its secret is all 0. */
export function drawLabels(model, labels, real, random) {
  const shown = [];
  const secret = [];
  const given = model.labels.map(({ kind }, i) => {
    const y = real ? labels[i] : 0n;
    return kind === 'reals' ? y : rounded(y, random);
  });
  model.labels.forEach((label, i) => {
    const space = labelSpace(label);
    let y = label.kind === 'reals' ? quantise(label, given[i], random) : given[i];
    if (model.randomised_response !== null) y = respond(space, y, model.randomised_response.epsilon, random);
    const these = candidates(model, space, real ? y : 0, random);
    shown.push(these);
    secret.push(...these.map((x) => (real && x === y ? 1n : 0n)));
  });
  return { candidates: shown, secret };
}
