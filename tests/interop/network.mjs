// A network in integers: its weights on the wire, and the forward pass that every helper computes alike.
import { Reader, need } from './bytes.mjs';
import { expMinus } from './exact.mjs';

const clamp = (x, bound) => (x > bound ? bound : x < -bound ? -bound : x);

/** round(x * 2^-shift) of an integer: floor(. + 1/2). */
const shifted = (x, shift) => (shift <= 0n ? x << -shift : (x + (1n << (shift - 1n))) >> shift);
/** round(x / y), both over 0. */
const divided = (x, y) => (2n * x + y) / (2n * y);

const exp = (t) => shifted(expMinus(t, 256n, 94), 64n); // in units of 2^-30
const sigmoid = (t) => (t >= 0n ? divided(1n << 50n, (1n << 30n) + exp(t)) : (1n << 20n) - sigmoid(-t)); // of 2^-20

/** A number after an activation, of exponent h; z is a sum of exponent e. */
export const ACTIVATIONS = {
  relu: (z, e, h) => (z > 0n ? clamp(shifted(z, e - h), 255n) : 0n),
  identity: (z, e, h) => clamp(shifted(z, e - h), 255n),
  leaky_relu: (z, e, h, k) => clamp(z > 0n ? shifted(z, e - h) : shifted(z * k, e - h + 8n), 255n),
  elu: (z, e, h, k) => {
    if (z > 0n) return clamp(shifted(z, e - h), 255n);
    const t = clamp(shifted(-z, e - 8n), 4095n);
    return clamp(shifted(k * (exp(t) - (1n << 30n)), 38n - h), 255n);
  },
  sigmoid: (z, e) => clamp(shifted(sigmoid(clamp(shifted(z, e - 8n), 4095n)), 12n), 255n),
  tanh: (z, e) => clamp(shifted(2n * sigmoid(clamp(shifted(z, e - 9n), 4095n)) - (1n << 20n), 12n), 255n),
};

/** Layers with their weights by output, and the exponents of what is between them. */
export function readWeights(model, bytes) {
  const reader = new Reader(bytes);
  need(reader.number(1) === 1, 'UnsupportedVersion', 'weights of another version');
  const width = reader.number(1) / 8;
  need(width === 1 || width === 2, 'OutOfRange', 'weights of neither 8 nor 16 bits');
  const [parameters, hidden] = [reader.number(2), reader.number(2)];
  const [exponents, between] = [parameters, hidden].map((count) => Array.from(reader.take(count), BigInt));
  const value = () => BigInt.asIntN(8 * width, reader.take(width).reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n));
  const list = (count) => Array.from({ length: count }, value);
  let inputs = model.features;
  const layers = model.layers.map((layer, k) => {
    const flat = list(inputs * layer.outputs);
    const at = (j, i) => flat[layer.transposed ? i * layer.outputs + j : j * inputs + i];
    const weight = Array.from({ length: layer.outputs }, (_, j) => Array.from({ length: inputs }, (_, i) => at(j, i)));
    inputs = layer.outputs;
    const made = { ...layer, weight, exponent: exponents.shift(), hidden: k > 0 ? between[k - 1] : 8n };
    return layer.bias ? { ...made, biases: list(layer.outputs), biasExponent: exponents.shift() } : made;
  });
  reader.end();
  need(exponents.length === 0 && between.length === layers.length - 1, 'WrongLength', 'weights of another model');
  return layers;
}

/** A layer's input, to evaluate: the activation of the sums before it, and a dropout that drops nothing. */
function inputOf({ activation, slope, dropout, hidden }, { numbers, exponent }) {
  let made = { numbers, exponent };
  if (activation !== null) {
    const act = ACTIVATIONS[activation];
    made = { numbers: numbers.map((z) => act(z, exponent, hidden, BigInt(slope ?? 0))), exponent: hidden };
  }
  if (dropout === null) return made;
  let gain = 0n;
  while ((256n - BigInt(dropout)) << gain < 256n) gain++;
  return { numbers: made.numbers.map((a) => shifted(a, gain)), exponent: made.exponent - gain };
}

function sums({ weight, exponent: w, biases, biasExponent }, { numbers, exponent: i }) {
  const made = weight.map((row, j) => {
    const bias = biases ? biases[j] << (w + i - biasExponent) : 0n;
    return row.reduce((sum, x, at) => sum + x * numbers[at], bias);
  });
  return { numbers: made, exponent: w + i };
}

/** The input of the last layer, and its sums; both with their exponent. */
export function forward(layers, features) {
  let made = { numbers: Array.from(features, BigInt), exponent: 8n };
  let input;
  for (const layer of layers) {
    input = inputOf(layer, made);
    made = sums(layer, input);
  }
  return { input, output: made };
}
