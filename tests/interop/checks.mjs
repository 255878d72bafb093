// Check keys as they are sealed, and check messages: what helpers publish of a chunk's reports, and which are valid by all.
import { hmac } from '@noble/hashes/hmac.js';
import { sha256 } from '@noble/hashes/sha2.js';
import { Reader, Refused, concat, decodeText, hex, need, same, unhex, utf8, vector } from './bytes.mjs';
import { canonical } from './document.mjs';
import { decodeElements } from './field.mjs';
import { suite } from './report.mjs';
import { checkSignature } from './signatures.mjs';
import { isValid } from './validity.mjs';

const MAX_ROWS = 16384;
const ROW = 32;
const MAX_BODY = MAX_ROWS * ROW + 2048;
const CERTIFICATE = ['format', 'helper', 'key', 'not_after', 'not_before'];

/** The key of a document's checks, as the first helper derives it. */
export const checkKeyOf = (secret, origin, digest) =>
  hmac(sha256, secret, concat(...[utf8('maskedlark v2 check key'), utf8(origin), digest].map((x) => vector(x, 4))));

function readRows(body) {
  need(body.left % ROW === 0 && body.left <= MAX_ROWS * ROW, 'WrongLength', 'not a number of rows');
  const rows = new Map();
  let count = 0;
  for (; body.left > 0; count++) rows.set(hex(body.take(16)), decodeElements(body.take(16)));
  need(rows.size === count, 'DuplicateId', 'a report that is listed twice');
  return rows;
}

function readBody(bytes) {
  const body = new Reader(bytes);
  body.version();
  const [place, time] = [body.number(1), body.number(8)];
  need(place < 16 && time < 2 ** 40, 'OutOfRange', 'a place or a time that there is not');
  return {
    place,
    time,
    origin: decodeText(body.vector(1, 1, 253)),
    digest: body.take(32),
    keyDigest: body.take(32),
    rows: readRows(body),
  };
}

/** The key that a helper's identity certifies, if it does so at this time. */
async function certified(text, signature, { name, identity }, time) {
  await checkSignature(unhex(identity), 'maskedlark v2 receipt key', utf8(text), signature);
  const fields = JSON.parse(text);
  need(canonical(fields) === text && Object.keys(fields).join() === CERTIFICATE.join(), 'BadSignature', 'not a certificate');
  need(fields.format === 2 && fields.helper === name, 'BadSignature', 'the certificate of another helper');
  need(fields.not_before <= time && time < fields.not_after, 'BadSignature', 'a certificate of another time');
  return unhex(fields.key);
}

/** Numbers by report id, as the helper at a place published them under this document and check key. */
export async function readChecks(message, document, place, key) {
  const signed = new Reader(message);
  signed.version();
  const bytes = signed.vector(4, 1, MAX_BODY);
  const signature = signed.take(64);
  const certificate = decodeText(signed.vector(2, 1, 1024));
  const byIdentity = signed.take(64);
  signed.end();
  const body = readBody(bytes);
  try {
    const signer = await certified(certificate, byIdentity, document.helpers[place], body.time);
    await checkSignature(signer, 'maskedlark v2 check message', bytes, signature);
  } catch (error) {
    throw new Refused('BadChecks', error.message);
  }
  need(body.place === place && body.origin === document.origin, 'BadChecks', 'of another place or origin');
  need(same(body.digest, document.digest) && same(body.keyDigest, sha256(key)), 'BadChecks', 'of another document or key');
  return body.rows;
}

/** Whether a report is valid, by the numbers of all helpers. */
export const validByAll = (id, messages) => messages.every((rows) => rows.has(id)) && isValid(messages.map((rows) => rows.get(id)));

const CHECK_KEY = 'maskedlark v2 check key';
const isForm = (fields, names) => fields !== null && typeof fields === 'object' && Object.keys(fields).join() === names;

/** The first helper's message, if it signed it for this document and all its helpers. */
async function readSealed(text, document) {
  const signed = JSON.parse(text);
  need(JSON.stringify(signed) === text && isForm(signed, 'message,signature,certificate'), 'BadSignature', 'not the one form');
  const message = JSON.parse(signed.message);
  need(canonical(message) === signed.message, 'BadSignature', 'a message that is not canonical');
  need(isForm(message, 'dataset,format,helper,origin,parameters,sealed,time'), 'BadSignature', 'other fields');
  const { certificate, signature } = signed.certificate;
  const signer = await certified(certificate, unhex(signature), document.helpers[0], message.time);
  await checkSignature(signer, CHECK_KEY, utf8(signed.message), unhex(signed.signature));
  const named = message.format === 2 && message.dataset === null && message.helper === document.helpers[0].name;
  need(named && message.origin === document.origin && message.parameters === hex(document.digest), 'BadSignature', 'of another document');
  const names = document.helpers.map(({ name }) => name).sort().join();
  need(Object.keys(message.sealed).join() === names, 'BadSignature', 'not for all helpers of the document, and no others');
  return message.sealed;
}

/** A document's check key, as the first helper sealed it to the one at a place. `secrets` maps key ids to private keys. */
export async function readCheckKey(text, document, place, secrets) {
  try {
    const { name } = document.helpers[place];
    const { key, seed } = (await readSealed(text, document))[name];
    need(secrets.has(key), 'CannotOpen', 'sealed to a key that is gone');
    const parts = [utf8(CHECK_KEY), utf8(document.origin), document.digest, new Uint8Array(), utf8(name), unhex(key)];
    const [info, sealed] = [concat(...parts.map((x) => vector(x, 4))), unhex(seed)];
    return new Uint8Array(await suite.open({ recipientKey: secrets.get(key), enc: sealed.subarray(0, 32), info }, sealed.subarray(32)));
  } catch (error) {
    throw new Refused('BadCheckKey', error.message);
  }
}
