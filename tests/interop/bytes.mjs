// Bytes: hexadecimal, joining, UTF-8, and a reader that refuses with the protocol's error names.

/** What a decoder throws: `name` is the error's name in the protocol. */
export class Refused extends Error {
  constructor(name, message) {
    super(message);
    this.name = name;
  }
}

export const need = (condition, name, message) => {
  if (!condition) throw new Refused(name, message);
};

export const utf8 = (text) => new TextEncoder().encode(text);
export const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');

export function unhex(text) {
  need(typeof text === 'string' && /^([0-9a-f]{2})*$/.test(text), 'WrongType', 'not hexadecimal in lower case');
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export function concat(...parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

export const same = (a, b) => a.length === b.length && a.every((byte, i) => byte === b[i]);

/** A number, unsigned and big-endian; two's complement if it is negative. */
export function number(value, width) {
  let rest = BigInt.asUintN(8 * width, BigInt(value));
  const bytes = new Uint8Array(width);
  for (let i = width - 1; i >= 0; i--, rest >>= 8n) bytes[i] = Number(rest & 255n);
  return bytes;
}

export const toBigInt = (bytes) => bytes.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
export const littleEndian = (bytes) => toBigInt(Uint8Array.from(bytes).reverse());
export const vector = (bytes, width) => concat(number(bytes.length, width), bytes);

export function decodeText(bytes) {
  try {
    // Without ignoreBOM two different byte strings would read as the same text.
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Refused('WrongType', 'a text that is not UTF-8');
  }
}

export class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }
  get left() {
    return this.bytes.length - this.at;
  }
  take(count) {
    need(count <= this.left, 'Truncated', `${count} bytes expected, ${this.left} left`);
    this.at += count;
    return this.bytes.subarray(this.at - count, this.at);
  }
  number(width) {
    return Number(toBigInt(this.take(width)));
  }
  /** The length is judged before the bytes: a length out of range is never called truncated. */
  vector(width, least, most) {
    const length = this.number(width);
    need(length >= least && length <= most, 'WrongLength', `a length of ${length}, not ${least} to ${most}`);
    return this.take(length);
  }
  version() {
    const version = this.number(1);
    need(version === 2, 'UnsupportedVersion', `version ${version}, not 2`);
  }
  end() {
    need(this.left === 0, 'TrailingBytes', `${this.left} bytes left over`);
  }
}
