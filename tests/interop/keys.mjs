// Signed key configurations of helpers.
import { sha256 } from '@noble/hashes/sha2.js';
import { Reader, concat, decodeText, hex, need, same, utf8 } from './bytes.mjs';
import { checkEd25519Key, checkSignature, checkX25519Key } from './signatures.mjs';

export const keyId = (publicKey) => sha256(concat(utf8('maskedlark v2 hpke key'), publicKey)).slice(0, 16);

/** The configuration of the helper that a document names so; `seen` is the largest sequence known of it. */
export async function readKeys(message, helper, identity, seen = 0) {
  const signed = new Reader(message);
  signed.version();
  const bytes = signed.vector(2, 1, 65535);
  const signature = signed.take(64);
  signed.end();
  await checkSignature(identity, 'maskedlark v2 key configuration', bytes, signature);

  const body = new Reader(bytes);
  body.version();
  const named = body.take(32);
  checkEd25519Key(named);
  const sequence = body.number(4);
  const name = decodeText(body.vector(1, 1, 64));
  const address = decodeText(body.vector(2, 1, 512));
  need(body.left >= 48 && body.left <= 64 * 48, 'WrongLength', 'a helper has 1 to 64 keys');
  const keys = [];
  while (body.left > 0) {
    const publicKey = body.take(32);
    await checkX25519Key(publicKey);
    const key = { id: keyId(publicKey), publicKey, notBefore: body.number(8), notAfter: body.number(8) };
    need(key.notBefore < key.notAfter && key.notAfter < 2 ** 40, 'OutOfRange', 'a key that is valid at no time');
    keys.push(key);
  }
  need(new Set(keys.map(({ id }) => hex(id))).size === keys.length, 'DuplicateKey', 'a key that is listed twice');
  need(same(named, identity) && name === helper, 'BadSignature', 'the keys of another helper');
  need(sequence >= seen, 'RolledBack', 'an older configuration than one seen before');
  return { helper: name, address, sequence, keys };
}

/** The valid key that began last; of several, the one listed last. */
export function currentKey({ helper, keys }, now) {
  const valid = keys.filter((key) => key.notBefore <= now && now < key.notAfter);
  need(valid.length > 0, 'NoValidKey', `helper ${helper} has no valid key`);
  return valid.reduce((best, key) => (key.notBefore >= best.notBefore ? key : best));
}
