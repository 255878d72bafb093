// Every vector: what a browser writes, what an ad server checks, and what helpers open, check, draw and compute.
import './labels.test.mjs';
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { sha256 } from '@noble/hashes/sha2.js';
import { heldOut, partition, poisson } from './batches.mjs';
import { concat, hex, number, unhex, utf8, vector } from './bytes.mjs';
import { cellOf, tableOf } from './cells.mjs';
import { checkKeyOf, readCheckKey, readChecks, validByAll } from './checks.mjs';
import { decodeCell, encodeCell, encodeColumns } from './columns.mjs';
import { canonical, followDocument, parseDocument } from './document.mjs';
import { P, decodeElements, element, encodeElements } from './field.mjs';
import { each, files, folder, read, texts } from './files.mjs';
import { currentKey, keyId, readKeys } from './keys.mjs';
import { billionths } from './labels.mjs';
import { maskKey, masked } from './masks.mjs';
import { factorOf, momentsOf, phi } from './moments.mjs';
import { readWeights } from './network.mjs';
import { addFeatureNoise, laplaceCuts } from './noise.mjs';
import { recorded, system } from './random.mjs';
import { infoOf, makeReport, openPart, partOf, suite } from './report.mjs';
import { firstShare, shareOfSeed } from './shares.mjs';
import { SMALL_ORDER_Y, labelled } from './signatures.mjs';
import { checkReport, decodeUpload, encodeUpload } from './upload.mjs';
import { bitsOf, challenge, evaluate, isValid, maskCounts, numbersToCheck, prove, weightsOf } from './validity.mjs';

const NOW = 1794442834; // the clock of the vectors
const keyOf = ({ text, number }) => text ?? BigInt(number);

const layouts = read('layouts');
const documents = new Map(layouts.map((v) => [v.document, parseDocument(v.text)]));
const byDigest = new Map(layouts.map((v) => [v.digest, documents.get(v.document)]));

/** A key pair of its raw secret key; WebCrypto tells the public key only in a JWK. */
async function pairOf(secret) {
  const pkcs8 = concat(unhex('302e020100300506032b656e04220420'), secret);
  const privateKey = await crypto.subtle.importKey('pkcs8', pkcs8, 'X25519', true, ['deriveBits']);
  const raw = Buffer.from((await crypto.subtle.exportKey('jwk', privateKey)).x, 'base64url');
  return { privateKey, publicKey: await suite.kem.importKey('raw', new Uint8Array(raw), true), raw: new Uint8Array(raw) };
}

each('shares', (v) => `${v.purpose}, ${v.carried.length} helpers`, (v) => {
  const purpose = { aggregate: 1, train: 2 }[v.purpose];
  const id = unhex(v.report_id);
  const secret = v.secret.map(BigInt);
  const seeds = v.carried.slice(1).map(unhex);
  const first = firstShare(purpose, id, secret, seeds);
  const shares = [first, ...seeds.map((seed, i) => shareOfSeed(purpose, i + 1, id, seed, secret.length))];
  assert.equal(hex(encodeElements(first)), v.carried[0]);
  assert.deepEqual(decodeElements(unhex(v.carried[0])), first);
  assert.deepEqual(shares.map(texts), v.shares);
  assert.deepEqual(secret.map((_, j) => element(shares.reduce((sum, share) => sum + share[j], 0n))), secret);
});

each('noise', (v) => `${v.epsilon}, ${v.sensitivity}: ${v.name}`, (v) => {
  const cuts = laplaceCuts(v)(64);
  for (const [n, cut] of Object.entries(v.cuts)) assert.equal(String(cuts[255 + Number(n)]), cut);
  const drawn = recorded(unhex(v.drawn));
  const model = { columns: [{ kind: 'bytes', count: v.bytes.length / 2 }], feature_noise: v };
  assert.equal(hex(addFeatureNoise(model, unhex(v.bytes), drawn)), v.noisy);
  assert.equal(drawn.left(), 0);
});

const typed = (columns, values) => encodeColumns(columns, values.map((x) => (typeof x === 'string' ? unhex(x) : x)));

each('columns', (v) => v.kind, (v) => {
  if (v.kind === 'typed') return assert.equal(hex(typed(v.columns, v.values)), v.encoded);
  assert.equal(hex(encodeCell(keyOf(v.key))), v.cell);
  assert.equal(decodeCell(unhex(v.cell)), keyOf(v.key));
});

each('layouts', (v) => `${v.document}, ${v.purpose}`, (v) => {
  const document = parseDocument(v.text);
  const layout = document.layouts[v.purpose];
  assert.equal(hex(document.digest), v.digest);
  assert.equal(hex(layout.prefix), v.prefix);
  assert.equal(layout.reportBytes, v.report_bytes);
  const helpers = layout.payloadBytes.map((payload_bytes, place) => ({
    part_bytes: 116 + payload_bytes,
    payload_bytes,
    records: layout.records.map((record) => {
      const columns = 16 + record.width;
      return { columns: [16, columns], secret: [columns, columns + layout.secretBytes(place, record)] };
    }),
  }));
  assert.deepEqual(helpers, v.helpers);
});

each('reports', (v) => v.name, async (v) => {
  const document = documents.get(v.document);
  const model = document.models.find(({ tag }) => tag === v.tag);
  const drawn = recorded(unhex(v.drawn));
  const record = v.purpose === 'aggregate'
    ? { keys: v.shown.map(keyOf), values: v.truth.map(billionths), real: v.real }
    : { tag: v.tag, columns: addFeatureNoise(model, typed(model.columns, v.shown), drawn), labels: v.truth.map(billionths), real: v.real };
  const own = await Promise.all(v.helpers.map((helper) => pairOf(unhex(helper.secret_key))));
  const pairs = await Promise.all(v.helpers.map((helper) => pairOf(unhex(helper.ephemeral))));
  const keys = own.map(({ raw }) => ({ id: keyId(raw), publicKey: raw }));
  const made = await makeReport(document, v.purpose, record, { hour: v.hour, keys, random: drawn, pairs });
  assert.equal(drawn.left(), 0);
  assert.equal(hex(made.columns), v.columns);
  assert.deepEqual(made.candidates, v.candidates);
  assert.deepEqual(texts(made.secret), v.secret);
  assert.equal(hex(made.head), v.head);
  assert.equal(hex(made.report), v.report);
  const shares = [];
  for (const [place, helper] of v.helpers.entries()) {
    assert.equal(hex(keys[place].id), helper.key_id);
    assert.equal(hex(infoOf(document, v.purpose, place, keys[place].id, made.head)), helper.info);
    assert.equal(hex(partOf(document, v.purpose, place, made.report)), helper.part);
    const secrets = new Map([[helper.key_id, own[place].privateKey]]);
    const opened = await openPart(document, v.purpose, place, secrets, unhex(helper.part), NOW);
    assert.equal(hex(opened.payload), helper.payload);
    assert.deepEqual(texts(opened.share), helper.shares);
    if (v.purpose === 'aggregate') assert.deepEqual(opened.keys, v.shown.map(keyOf));
    else assert.deepEqual(opened.candidates, v.candidates);
    shares.push(opened.share);
  }
  const sums = made.secret.map((_, j) => element(shares.reduce((sum, share) => sum + share[j], 0n)));
  assert.deepEqual(texts(sums), v.sums);
  if (document.checks === 'none') return;
  const counts = model ? maskCounts(model) : null;
  const count = model ? counts.reduce((sum, each) => sum + each) : 1 + document.values.reduce((sum, d) => sum + weightsOf(d).length, 0);
  const published = v.helpers.map((helper, place) => {
    const numbers = numbersToCheck(shares[place].slice(0, count), counts);
    const t = challenge(unhex(helper.check_key), made.head.subarray(0, 16), numbers.length);
    assert.equal(String(t), helper.t);
    return evaluate(numbers, shares[place].slice(count), t);
  });
  assert.deepEqual(published.map(texts), v.helpers.map((helper) => helper.numbers));
  assert.ok(isValid(published));
});

each('bits', (v) => `${v.low} to ${v.high}`, (v) => {
  const declared = { low: Number(v.low), high: Number(v.high) };
  assert.deepEqual(texts(weightsOf(declared)), v.weights);
  for (const { value, bits } of v.values) assert.deepEqual(bitsOf(declared, Number(value)).map(Number), bits);
});

each('checks', (v) => v.name, (v) => {
  const [secret, proof] = [v.secret, v.proof].map((list) => list.map(BigInt));
  const numbers = numbersToCheck(secret, v.labels);
  const t = challenge(unhex(v.check_key), unhex(v.report_id), numbers.length);
  assert.equal(String(t), v.t);
  if (v.valid) assert.deepEqual(prove(numbers, proof[0]), proof);
  const published = v.shares.map((list) => {
    const share = list.map(BigInt);
    return evaluate(numbersToCheck(share.slice(0, secret.length), v.labels), share.slice(secret.length), t);
  });
  assert.deepEqual(published.map(texts), v.numbers);
  assert.equal(isValid(published), v.valid);
});

each('uploads', (v) => `${v.reports.length} reports`, (v) => {
  assert.equal(hex(encodeUpload(v.reports.map(unhex))), v.body);
  assert.deepEqual(decodeUpload(unhex(v.body)).map(hex), v.reports);
  for (const report of v.reports) checkReport(unhex(report), 'ads.example', byDigest, NOW);
});

const follow = (v) => {
  const keys = { pinned: unhex(v.pinned), serviceKey: unhex(v.service_key) };
  return followDocument(unhex(v.data), v.before && parseDocument(v.before), keys);
};

each('documents', (v) => v.name, async (v) => assert.equal(hex((await follow(v)).digest), v.digest));

each('keys', (v) => `${v.keys.length} keys`, async (v) => {
  const config = await readKeys(unhex(v.message), v.helper, unhex(v.identity));
  const keys = config.keys.map((key) =>
    ({ id: hex(key.id), public: hex(key.publicKey), not_before: key.notBefore, not_after: key.notAfter }));
  assert.deepEqual({ ...config, keys }, { helper: v.helper, address: v.address, sequence: v.sequence, keys: v.keys });
  for (const [now, id] of Object.entries(v.current)) assert.equal(hex(currentKey(config, Number(now)).id), id);
});

const secretKeys = new Map(read('reports').flatMap((v) => v.helpers.map((helper) => [helper.name, helper])));

each('bad', (v) => `${v.who}: ${v.name}`, async (v) => {
  const data = unhex(v.data);
  const reading = {
    'ad server': async () => decodeUpload(data).map((report) => checkReport(report, 'ads.example', byDigest, NOW)),
    helper: async () => {
      const document = documents.get(v.document);
      const { key_id, secret_key } = secretKeys.get(document.helpers[v.place].name);
      const secrets = new Map([[key_id, (await pairOf(unhex(secret_key))).privateKey]]);
      return openPart(document, v.purpose, v.place, secrets, data, NOW);
    },
    keys: () => readKeys(data, v.helper, unhex(v.identity)),
    document: async () => parseDocument(Buffer.from(data).toString('latin1')), // all ASCII, or refused
    'signed document': () => follow(v),
  };
  const reader = reading[v.message ?? v.who];
  if (v.error === null) await reader();
  else await assert.rejects(reader, { name: v.error });
});

const lists = (numbers) => numbers.map((list) => list.map(BigInt));
const addedUp = (answers) => answers[0].map((_, j) => element(answers.reduce((sum, answer) => sum + answer[j], 0n)));
const signed = (elements) => elements.map((x) => String(2n * x > P ? x - P : x));

each('answer-masks', (v) => `${v.answers.length} helpers, ${v.seeds.length} datasets`, async (v) => {
  const bytes = (x) => (Array.isArray(x) ? x.map(unhex) : unhex(x));
  const key = maskKey(v.seeds.map(unhex), v.bound.map(bytes));
  assert.equal(hex(key), v.key);
  const answers = lists(v.answers);
  const sent = await Promise.all(answers.map((answer, place) => masked(answer, key, place, answers.length)));
  assert.deepEqual(sent.map(texts), v.masked);
  assert.deepEqual(addedUp(sent), addedUp(answers));
});

each('batches', (v) => `${v.kind}, ${v.records} records`, (v) => {
  const seed = unhex(v.seed);
  if (v.kind === 'held out') return assert.deepEqual(heldOut(seed, v.tag, v.records, v.share), v.rows);
  if (v.kind === 'partition') {
    return assert.deepEqual(partition(seed, v.tag, v.slot, v.records, v.batches.length), v.batches);
  }
  const { batch, rows, room } = v;
  assert.deepEqual(poisson(seed, v.tag, v.slot, v.records, v.rate), { batch, rows, room });
});

each('check-keys', (v) => `${v.document}, ${v.place}: ${v.error}`, async (v) => {
  const { privateKey, raw } = await pairOf(unhex(v.secret_key));
  const secrets = new Map([[hex(keyId(raw)), privateKey]]);
  const reading = readCheckKey(v.message, documents.get(v.document), v.place, secrets);
  if (v.error !== null) return assert.rejects(reading, { name: v.error });
  assert.equal(hex(await reading), v.check_key);
});

const messages = read('check-messages');

each('check-messages', (v) => `${v.document}, ${v.place}: ${v.error}`, async (v) => {
  const document = documents.get(v.document);
  const key = checkKeyOf(unhex(v.check_secret), document.origin, document.digest);
  assert.equal(hex(key), v.check_key);
  assert.equal(hex(sha256(key)), v.key_digest);
  const reading = ({ message, place }) => readChecks(unhex(message), document, place, key);
  if (v.error !== null) return assert.rejects(reading(v), { name: v.error });
  const rows = await reading(v);
  assert.deepEqual([...rows.keys()], v.ids);
  assert.deepEqual([...rows.values()].map(texts), v.numbers);
  const all = await Promise.all(messages.filter((m) => m.document === v.document && m.error === null).map(reading));
  assert.equal(all.length, document.helpers.length);
  assert.deepEqual(v.ids.map((id) => validByAll(id, all)), v.valid);
});

/** A helper's shares of a label's masks, record by record. */
const ofLabel = (v, shares, label) => {
  const width = (i, record) => v.candidates[i][record].length;
  return lists(shares).map((row, record) => {
    const from = Array.from({ length: label }, (_, i) => width(i, record)).reduce((sum, x) => sum + x, 0);
    return row.slice(from, from + width(label, record));
  });
};

const checkAnswers = (v, answers) => {
  assert.deepEqual(answers.map((lists) => lists.map(texts)), v.answers);
  assert.deepEqual(v.sums.map((_, i) => signed(addedUp(answers.map((lists) => lists[i])))), v.sums);
};

each('moments', (v) => `${v.model.layers.length} layers, ${v.norm}`, (v) => {
  const layers = readWeights(v.model, unhex(v.weights));
  const records = v.features.map((features) => phi(layers, unhex(features)));
  const factors = records.map((record) => factorOf(record, { ...v, fraction: v.model.fraction }));
  assert.deepEqual(records.map(({ numbers }) => numbers.map(Number)), v.numbers);
  assert.deepEqual(factors.map(Number), v.factors);
  const rows = records.map(({ numbers }, i) => numbers.map((x) => factors[i] * x));
  const ofHelper = (shares) => v.model.losses.map((loss, i) => momentsOf(loss, rows, v.candidates[i], ofLabel(v, shares, i)));
  checkAnswers(v, v.shares.map(ofHelper));
});

each('cells', (v) => v.tables.map(({ cells }) => cells.kind).join(), (v) => {
  const layers = v.model && readWeights(v.model, unhex(v.weights));
  const cells = v.tables.map((table) => v.features.map((features) => cellOf(table.cells, layers, unhex(features))));
  assert.deepEqual(cells, v.cells);
  const ofHelper = (shares) => v.tables.map((table, i) =>
    tableOf(table, v.spaces[table.label], cells[i], v.candidates[table.label], ofLabel(v, shares, table.label)));
  checkAnswers(v, v.shares.map(ofHelper));
});

it('every file of vectors is read', () => assert.deepEqual([...files].sort(), readdirSync(folder).sort()));

describe('what has no vector', () => {
  it('the y of order 8 is one', () => {
    const q = 2n ** 255n - 19n;
    const y = SMALL_ORDER_Y[3];
    // d = -121665/121666; a point whose double has y = 0 solves d y^4 + 2 y^2 = 1
    assert.equal((-121665n * y ** 4n + 121666n * (2n * y ** 2n - 1n)) % q, 0n);
  });

  it('make.mjs makes an upload that helpers open', async () => {
    const raw = async ({ publicKey }) => new Uint8Array(await crypto.subtle.exportKey('raw', publicKey));
    const signer = async () => {
      const pair = await crypto.subtle.generateKey('Ed25519', true, ['sign']);
      const sign = async (label, message) => new Uint8Array(await crypto.subtle.sign('Ed25519', pair.privateKey, labelled(label, message)));
      return { key: await raw(pair), sign };
    };
    const fields = JSON.parse(layouts[0].text);
    const [origin, service, ...helpers] = await Promise.all([0, 0, 0, 0].map(signer));
    const own = await Promise.all(helpers.map(() => pairOf(system(32))));
    helpers.forEach(({ key }, i) => (fields.helpers[i].identity = hex(key)));
    fields.models[1].randomised_response = { epsilon: 60 }; // never replaces a label
    fields.models[1].feature_noise = { epsilon: 1e6, sensitivity: 1 }; // never adds noise
    const text = canonical(fields);
    const document = parseDocument(text);
    const originSignature = await origin.sign('maskedlark v2 parameter document', utf8(text));
    const serviceSignature = await service.sign('maskedlark v2 published document', concat(utf8(text), originSignature));
    const keys = await Promise.all(helpers.map(async ({ key, sign }, i) => {
      const body = concat([2], key, number(1, 4), vector(utf8(fields.helpers[i].name), 1), vector(utf8('https://x'), 2), own[i].raw, number(0, 8), number(2e9, 8));
      return hex(concat([2], vector(body, 2), await sign('maskedlark v2 key configuration', body)));
    }));
    const job = {
      document: text,
      signatures: { document_key: hex(origin.key), origin_signature: hex(originSignature), service_key: hex(service.key), service_signature: hex(serviceSignature) },
      keys,
      now: NOW,
      aggregate: [{ keys: { campaign: 'spring', place: 7 }, values: { purchase: 60000, profit: -7, other: 1 }, real: true }],
      train: [
        { tag: 'basket', columns: '0304', values: { purchase: '40.0' }, conversions: 1, real: true },
        { tag: 'basket', columns: '0304', values: {}, conversions: 0, real: false },
      ],
    };
    const make = (input) => spawnSync(process.execPath, [fileURLToPath(new URL('make.mjs', import.meta.url))], { input: JSON.stringify(input) });
    const { stdout, stderr } = make(job);
    assert.equal(stderr.toString(), '');
    const known = new Map([[hex(document.digest), document]]);
    const seen = [];
    for (const report of decodeUpload(new Uint8Array(stdout))) {
      const { purpose } = checkReport(report, document.origin, known, NOW);
      const opened = await Promise.all(own.map(({ raw: key, privateKey }, place) =>
        openPart(document, purpose, place, new Map([[hex(keyId(key)), privateKey]]), partOf(document, purpose, place, report), NOW)));
      const sums = opened[0].share.map((x, j) => Number(BigInt.asIntN(62, element(x + opened[1].share[j]))));
      const labels = opened[0].candidates?.flat();
      seen.push(labels ? labels.filter((_, j) => sums[j] === 1) : sums.slice(0, 2));
    }
    assert.deepEqual(seen, [[1, 50000], [40, 1], []]);
    const refused = make({ ...job, signatures: { ...job.signatures, document_key: hex(service.key) } });
    assert.equal(refused.status, 1);
    assert.match(refused.stderr.toString(), /^No upload was made: .*BadSignature.*\n$/);
  });
});
