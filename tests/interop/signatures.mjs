// Ed25519 under a label, and public keys that are refused.
import { concat, littleEndian, need, utf8 } from './bytes.mjs';

const Q = 2n ** 255n - 19n;
const Y8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022n; // of order 8: d y^4 + 2 y^2 = 1
export const SMALL_ORDER_Y = [0n, 1n, Q - 1n, Y8, Q - Y8];

export function checkEd25519Key(key) {
  const y = littleEndian(key) & ((1n << 255n) - 1n); // without the sign of x
  need(key.length === 32 && y < Q && !SMALL_ORDER_Y.includes(y), 'WeakKey', 'an Ed25519 key that is not canonical or of small order');
}

export async function checkX25519Key(key) {
  need(littleEndian(key) < Q, 'WeakKey', 'an X25519 key that is not canonical');
  const theirs = await crypto.subtle.importKey('raw', key, 'X25519', false, []);
  const mine = await crypto.subtle.generateKey('X25519', false, ['deriveBits']);
  // WebCrypto refuses an exchange that is all zeros.
  const shared = await crypto.subtle.deriveBits({ name: 'X25519', public: theirs }, mine.privateKey, 256).catch(() => null);
  need(shared !== null && littleEndian(new Uint8Array(shared)) !== 0n, 'WeakKey', 'an X25519 key of small order');
}

export const labelled = (label, message) => concat([utf8(label).length], utf8(label), message);

export async function checkSignature(key, label, message, signature) {
  checkEd25519Key(key);
  const imported = await crypto.subtle.importKey('raw', key, 'Ed25519', false, ['verify']);
  const good = await crypto.subtle.verify('Ed25519', imported, signature, labelled(label, message));
  need(good, 'BadSignature', `a signature that is not good for "${label}"`);
}
