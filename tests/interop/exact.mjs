// Exact binary digits of probabilities: fixed-point arithmetic with an error bound, repeated with more bits if in doubt.

/** A float64 as the fraction that it is, [numerator, denominator]. */
export function fraction(x) {
  let denominator = 1n;
  for (; !Number.isInteger(x); x *= 2) denominator *= 2n;
  return [BigInt(x), denominator];
}

/** 2^bits * e^(-numerator/denominator) for a fraction over 0, within 1. */
export function expMinus(numerator, denominator, bits) {
  const whole = numerator / denominator;
  if (whole > BigInt(bits)) return 0n; // e^-x < 2^-bits
  // e^-x = (e^(-x / 2^halvings))^(2^halvings): squaring doubles the relative error each time, hence the bits added.
  const halvings = BigInt(whole.toString(2).length + 8);
  const scale = BigInt(bits) + halvings + 32n;
  const one = 1n << scale;
  const x = (numerator << (scale - halvings)) / denominator;
  let sum = one;
  let term = one;
  for (let i = 1n; term !== 0n; i++) {
    term = -((term * x) >> scale) / i;
    sum += term;
  }
  for (let i = 0n; i < halvings; i++) sum = (sum * sum) >> scale;
  return sum >> (scale - BigInt(bits));
}

/** floor(2^bits * v) of an irrational 0 < v < 1, where approximate(b) is 2^b * v within 2^24. */
export function floorOf(approximate, bits) {
  for (let guard = 64; ; guard *= 2) {
    const total = BigInt(bits + guard);
    const value = approximate(bits + guard);
    const low = value - (1n << 24n);
    const high = value + (1n << 24n);
    const least = low < 0n ? 0n : low >> BigInt(guard);
    const most = (high >> total ? (1n << total) - 1n : high) >> BigInt(guard);
    if (least === most) return least;
  }
}
