// Reports: made by a browser, opened part by part by helpers.
import { Aes128Gcm, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } from '@hpke/core';
import { sha256 } from '@noble/hashes/sha2.js';
import { Reader, Refused, concat, hex, need, number, same, utf8, vector } from './bytes.mjs';
import { CELL, checkColumns, columnsWidth, decodeCell, encodeCell } from './columns.mjs';
import { PURPOSES } from './document.mjs';
import { P, decodeElements, element, encodeElements } from './field.mjs';
import { drawLabels, labelSpace, rounded } from './labels.mjs';
import { below } from './random.mjs';
import { firstShare, shareOfSeed } from './shares.mjs';
import { bitsOf, maskCounts, numbersToCheck, prove } from './validity.mjs';

export const suite = new CipherSuite({ kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: new Aes128Gcm() });

const columnHash = (purpose, salt, columns) =>
  sha256(concat(utf8('maskedlark v2 columns'), [PURPOSES[purpose]], salt, columns));

export const infoOf = (document, purpose, place, keyId, head) =>
  concat(utf8('maskedlark v2 report'), [place], keyId, vector(utf8(document.helpers[place].name), 1), document.layouts[purpose].prefix, head);

function aggregateRecord(document, { keys, values, real }, random) {
  const whole = values.map((x) => (real ? rounded(x, random) : 0));
  const numbers = document.checks === 'none'
    ? whole.map(element)
    : document.values.flatMap((declared, i) => bitsOf(declared, whole[i]));
  return { kind: 0, columns: concat(...keys.map(encodeCell)), candidates: [], secret: [real ? 1n : 0n, ...numbers] };
}

/** The secret and, where reports are checked, its proof. Draws u. */
function withProof(document, purpose, { kind, secret }, random) {
  if (document.checks === 'none') return secret;
  const counts = purpose === 'aggregate' ? null : maskCounts(document.models[kind]);
  return [...secret, ...prove(numbersToCheck(secret, counts), below(random, P))];
}

function trainRecord(document, { tag, columns, labels, real }, random) {
  const kind = document.models.findIndex((model) => model.tag === tag);
  need(kind >= 0, 'NotAsDeclared', `there is no model ${tag}`);
  const model = document.models[kind];
  checkColumns(model.columns, columns);
  const { candidates, secret } = drawLabels(model, labels, real, random);
  const places = candidates.flatMap((shown, i) => {
    const space = labelSpace(model.labels[i]);
    return model.candidates === 'all' ? [] : shown.map((x) => number(space.indexOf(x), 2));
  });
  return { kind, columns: concat([kind], columns, ...places), candidates, secret };
}

/** A report of {keys, values, real} in the document's order, or of {tag, columns, labels, real}; values and
 *  labels in billionths. `keys` are the helpers'
 *  current keys. Only vectors give key pairs for the encapsulation. */
export async function makeReport(document, purpose, record, { hour, keys, random, pairs = [] }) {
  const layout = document.layouts[purpose];
  need(layout !== null, 'UndeclaredReport', `the document declares nothing to ${purpose}`);
  need(new Set(keys.map(({ id }) => hex(id))).size === document.helpers.length, 'DuplicateKey', 'each helper needs a key of its own');
  const made = (purpose === 'aggregate' ? aggregateRecord : trainRecord)(document, record, random);
  made.secret = withProof(document, purpose, made, random);
  const id = random(16);
  const salt = random(16);
  const seeds = document.helpers.slice(1).map(() => random(16));
  const first = encodeElements(firstShare(PURPOSES[purpose], id, made.secret, seeds));
  const head = concat(id, number(hour, 4), columnHash(purpose, salt, made.columns));
  const payloads = [first, ...seeds].map((secret, place) => {
    const payload = new Uint8Array(layout.payloadBytes[place]); // the rest stays zeros
    payload.set(concat(salt, made.columns, secret));
    return payload;
  });
  const sealed = [];
  for (const [place, key] of keys.entries()) {
    const recipientPublicKey = await suite.kem.importKey('raw', key.publicKey, true);
    const info = infoOf(document, purpose, place, key.id, head);
    const sender = await suite.createSenderContext({ recipientPublicKey, info, ekm: pairs[place] });
    const ciphertext = await sender.seal(payloads[place]);
    sealed.push(key.id, new Uint8Array(sender.enc), new Uint8Array(ciphertext));
  }
  return { ...made, head, payloads, report: concat(layout.prefix, head, ...sealed) };
}

/** What helper `place` is sent of a report. */
export function partOf(document, purpose, place, report) {
  const { prefix, payloadBytes } = document.layouts[purpose];
  const from = payloadBytes.slice(0, place).reduce((sum, size) => sum + 64 + size, prefix.length + 52);
  return concat(report.subarray(prefix.length, prefix.length + 52), report.subarray(from, from + 64 + payloadBytes[place]));
}

function openTrain(model, columns) {
  const reader = new Reader(columns.subarray(1));
  checkColumns(model.columns, reader.take(columnsWidth(model.columns)));
  return model.labels.map((label) => {
    const space = labelSpace(label);
    if (model.candidates === 'all') return space;
    const shown = Array.from({ length: model.candidates === 'pair' ? 2 : model.sample }, () => space[reader.number(2)]);
    const good = !shown.includes(undefined) && shown.includes(0) && new Set(shown).size === shown.length;
    need(good, 'NotAsDeclared', 'candidates that are not different members of the label space with 0 among them');
    return shown;
  });
}

/** Opens a helper's part of a report, in the protocol's order. `secrets` maps key ids to private keys. */
export async function openPart(document, purpose, place, secrets, part, now) {
  const layout = document.layouts[purpose];
  const reader = new Reader(part);
  const head = reader.take(52);
  const keyId = reader.take(16);
  const enc = reader.take(32);
  const ciphertext = reader.take(16 + layout.payloadBytes[place]);
  reader.end();
  const secretKey = secrets.get(hex(keyId));
  need(secretKey !== undefined, 'WrongHelper', 'sealed to a key of somebody else');
  const hour = new Reader(head.subarray(16)).number(4);
  const left = (hour + 1) * 3600 + document.report_lifetime_s - now;
  need(left > Math.min(86400, document.report_lifetime_s / 4), 'PastLifetime', 'an hour that is too old');
  need(hour <= Math.floor(now / 3600) + 48, 'FromTheFuture', 'an hour that is too far ahead');

  const payload = await suite
    .open({ recipientKey: secretKey, enc, info: infoOf(document, purpose, place, keyId, head) }, ciphertext)
    .then((opened) => new Uint8Array(opened))
    .catch(() => { throw new Refused('CannotOpen', 'a payload that does not open'); });
  const kind = purpose === 'aggregate' ? 0 : payload[16];
  const record = layout.records[kind];
  need(record !== undefined, 'NotAsDeclared', 'a model that is not declared');
  const salt = payload.subarray(0, 16);
  const columns = payload.subarray(16, 16 + record.width);
  const secret = payload.subarray(16 + record.width, 16 + record.width + layout.secretBytes(place, record));
  const padding = payload.subarray(16 + record.width + secret.length);
  need(padding.every((byte) => byte === 0), 'BadPadding', 'padding that is not zero');
  need(same(head.subarray(20), columnHash(purpose, salt, columns)), 'WrongColumnHash', 'columns that the public part does not bind');

  const id = head.subarray(0, 16);
  const share = place === 0 ? decodeElements(secret) : shareOfSeed(PURPOSES[purpose], place, id, secret, record.elements);
  const shown = purpose === 'aggregate'
    ? { keys: document.keys.map((_, i) => decodeCell(columns.subarray(i * CELL, (i + 1) * CELL))) }
    : { tag: document.models[kind].tag, candidates: openTrain(document.models[kind], columns) };
  return { id, hour, payload, columns, share, ...shown };
}
