// The vectors of labels: what a browser draws before it seals anything. They need no package.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { unhex } from './bytes.mjs';
import { each, texts } from './files.mjs';
import {
  attributed, billionths, candidates, cutValues, drawLabels, labelSpace, quantise, replacedCut, respond, rounded, trueLabel,
} from './labels.mjs';
import { recorded } from './random.mjs';

each('labels', (v) => JSON.stringify(v.attributed), (v) => {
  const sums = attributed([v.attributed]);
  assert.deepEqual(cutValues(v.values, sums), v.cut.map(billionths));
  assert.deepEqual(v.labels.map((label) => trueLabel(label, v.values, sums, v.conversions)), v.truth.map(billionths));
});

each('quantisation', (v) => `${v.label} of ${v.low} to ${v.high}`, (v) => {
  const label = { kind: 'reals', low: v.low, high: v.high, buckets: v.buckets };
  const drawn = recorded(unhex(v.drawn));
  assert.deepEqual(labelSpace(label), v.space);
  assert.equal(quantise(label, billionths(v.label), drawn), v.quantised);
  assert.equal(drawn.left(), 0);
});

each('rounding', (v) => `${v.purpose}: ${v.name}`, (v) => {
  const drawn = recorded(unhex(v.drawn));
  const sums = attributed(v.conversions);
  if (v.purpose === 'aggregate') {
    assert.deepEqual(cutValues(v.values, sums).map((x) => rounded(x, drawn)), v.rounded);
  } else {
    const model = { labels: v.labels, candidates: 'all', randomised_response: null };
    const exact = v.labels.map((label) => trueLabel(label, v.values, sums, v.conversions.length));
    const { candidates: shown, secret } = drawLabels(model, exact, true, drawn);
    const hot = shown.flatMap((space, i) => space.map((x) => BigInt(x === v.rounded[i])));
    assert.deepEqual(secret, hot);
  }
  assert.equal(drawn.left(), 0);
});

each('masks', (v) => `${v.policy}, ${v.label}`, (v) => {
  const [policy, , sample] = v.policy.split(' ');
  const drawn = recorded(unhex(v.drawn));
  const shown = candidates({ candidates: policy, sample: Number(sample) }, v.space, v.label ?? 0, drawn);
  assert.deepEqual(shown, v.candidates);
  assert.deepEqual(shown.map((x) => (x === v.label ? '1' : '0')), v.secret);
  assert.equal(drawn.left(), 0);
});

each('response', (v) => `${v.epsilon}, ${v.space.length} labels: ${v.name}`, (v) => {
  assert.deepEqual(texts(replacedCut(v.space.length, v.epsilon)(64)), [v.cut]);
  const drawn = recorded(unhex(v.drawn));
  assert.equal(respond(v.space, v.label, v.epsilon, drawn), v.response);
  assert.equal(drawn.left(), 0);
});

describe('decimals', () => {
  const good = { '-12.5': -12_500_000_000n, '1e-9': 1n, '0.1000000000000': 100_000_000n, 9007199254740991: 9007199254740991_000_000_000n };
  for (const [x, expected] of Object.entries(good)) it(x, () => assert.equal(billionths(x), expected));
  for (const x of [0.1 + 0.2, '1e-10', '9007199254740992', NaN, Infinity, null, true, [1], '', '1,5', '0x1']) {
    it(`not ${JSON.stringify(x)}`, () => assert.throws(() => billionths(x), { name: 'OutOfRange' }));
  }
});
