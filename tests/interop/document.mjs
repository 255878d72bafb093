// Parameter documents: canonical JSON, what it declares, the sizes that follow, and its signatures.
import { sha256 } from '@noble/hashes/sha2.js';
import { Refused, concat, decodeText, hex, need, same, unhex, utf8, vector } from './bytes.mjs';
import { CELL, columnsWidth } from './columns.mjs';
import { labelSpace, shownCount } from './labels.mjs';
import { checkEd25519Key, checkSignature } from './signatures.mjs';
import { weightsOf } from './validity.mjs';

export const PURPOSES = { aggregate: 1, train: 2 };

/** RFC 8785. JavaScript sorts strings by UTF-16 units and prints numbers as it asks. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  const names = Object.keys(value).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join()}}`;
}

const say = (condition, what) => need(condition, 'InvalidDocument', what);
const whole = (x, low, high) => Number.isSafeInteger(x) && x >= low && x <= high;
const within = (x, low, high) => typeof x === 'number' && x >= low && x <= high;
const distinct = (list) => new Set(list).size === list.length;
const isName = (x) => typeof x === 'string' && /^[A-Za-z0-9_.:/ -]{1,64}$/.test(x);

const hasFields = (x, names) =>
  say(x !== null && typeof x === 'object' && Object.keys(x).sort().join() === names.join(), `not exactly the fields ${names.join(', ')}`);
const MODEL = ['candidates', 'columns', 'encoder', 'feature_noise', 'gradient_bound', 'labels', 'randomised_response', 'sample', 'tag'];
const LABEL = ['buckets', 'classes', 'high', 'kind', 'low', 'value'];
const FIELDS = ['attribution_window_s', 'budget', 'checks', 'decoys', 'delay', 'document_key', 'fake_rate', 'format', 'helpers', 'k',
  'keys', 'max_records', 'mechanisms', 'models', 'not_after', 'origin', 'previous', 'report_lifetime_s', 'request_key', 'training',
  'values', 'version'];

function checkLabel(label, values) {
  hasFields(label, LABEL);
  // How many members the space has at most: to be known before it is listed.
  const most = { binary: 2, categorical: label.classes, integers: label.high - label.low + 1, reals: label.buckets + 1 }[label.kind];
  say(whole(most, 2, 65536), 'a label of an unknown kind, or a label space of another size than 2 to 65,536');
  const space = labelSpace(label);
  say(space.every(Number.isSafeInteger) && space.includes(0) && space.length <= 65536, 'a label space without 0, or too large');
  say(values.includes(label.value) || (label.kind === 'binary' && label.value === null), 'a label of a value that is not declared');
}

function checkModel(model, values) {
  hasFields(model, MODEL);
  say(isName(model.tag) && whole(model.columns.length, 1, 64) && whole(model.labels.length, 1, 32), 'a model');
  say(whole(columnsWidth(model.columns), 1, 65536), 'columns of an unknown kind, or too wide');
  say(model.columns.filter(({ kind }) => kind === 'bytes').length <= 1, 'two columns of bytes');
  model.labels.forEach((label) => checkLabel(label, values));
  const spaces = model.labels.map(labelSpace);
  say(spaces.every((space) => whole(shownCount(model, space), 2, Math.min(1024, space.length))), 'candidates of a model');
  const { feature_noise: noise, randomised_response: response } = model;
  say(noise === null || (within(noise.epsilon, 1e-6, 1e6) && within(noise.sensitivity, 1, 255)), 'feature noise');
  say(response === null || within(response.epsilon, 1e-6, 1e6), 'randomised response');
}

/** Strict about what reports are made of; what only helpers and ad servers use must be there, and is theirs to judge. */
function checkFields(d) {
  hasFields(d, FIELDS);
  say(whole(d.version, 1, 2 ** 31) && (d.version === 1) === (d.previous === null), 'version and previous');
  say(d.format === 3 && ['none', 'bits'].includes(d.checks), 'a format or checks that are unknown');
  say(/^[a-z0-9.:-]{1,253}$/.test(d.origin), 'origin');
  say(whole(d.report_lifetime_s, 3600, Number.MAX_SAFE_INTEGER), 'report_lifetime_s');
  say(d.document_key !== d.request_key, 'document_key and request_key are the same');
  say(whole(d.helpers.length, 2, 16) && d.helpers.every(({ name }) => isName(name)), 'helpers');
  [d.document_key, d.request_key, ...d.helpers.map(({ identity }) => identity)].map(unhex).forEach(checkEd25519Key);
  say(d.keys.length <= 32 && d.keys.every(isName), 'keys');
  say(d.values.length <= 32 && d.values.every((v) => isName(v.name) && [v.low, v.high].every(Number.isSafeInteger)), 'values');
  say(d.models.length <= 64, 'models');
  const values = d.values.map(({ name }) => name);
  const lists = [d.keys, values, ...['name', 'identity'].map((field) => d.helpers.map((h) => h[field])), d.models.map(({ tag }) => tag)];
  say(lists.every(distinct), 'a name that occurs twice');
  const counts = d.models.flatMap(({ labels }) => labels).map(({ buckets, classes, low, high }) => (buckets ? 2 * buckets : classes ?? high - low));
  say(counts.reduce((sum, count) => sum + Math.min(count, 65536), 0) <= 262144, 'too many labels');
  d.models.forEach((model) => checkModel(model, values));
}

/** The count, and each value or, where reports are checked, its bits. */
const valueElements = (d) => (d.checks === 'none' ? 1 + d.values.length : 1 + d.values.reduce((sum, v) => sum + weightsOf(v).length, 0));

/** All elements that are shared of a record: its own, and M + 2 for the proof, where sums are checked besides them. */
function counted(checks, own, sums) {
  if (checks === 'none') return { elements: own };
  say(own + sums <= 1024, 'more than 1,024 numbers to check');
  return { elements: own + own + sums + 2 };
}

/** Everything that the sizes of a purpose's reports follow from, or null if the document does not declare the purpose. */
function layoutOf(d, purpose, prefix) {
  const records =
    purpose === 'aggregate'
      ? d.values.length === 0 ? [] : [{ width: CELL * d.keys.length, ...counted(d.checks, valueElements(d), 0) }]
      : d.models.map((model) => {
          const masks = model.labels.reduce((sum, label) => sum + shownCount(model, labelSpace(label)), 0);
          const shown = model.candidates === 'all' ? 0 : masks;
          return { width: 1 + columnsWidth(model.columns) + 2 * shown, ...counted(d.checks, masks, model.labels.length) };
        });
  if (records.length === 0) return null;
  const secretBytes = (place, { elements }) => (place === 0 ? 8 * elements : 16);
  const payloadBytes = d.helpers.map((_, place) => Math.max(...records.map((r) => 16 + r.width + secretBytes(place, r))));
  const reportBytes = payloadBytes.reduce((sum, size) => sum + 16 + 48 + size, prefix.length + 52);
  say(payloadBytes.every((size) => size <= 131072) && reportBytes <= 1048576, 'reports that are too long');
  return { prefix, records, payloadBytes, reportBytes, secretBytes };
}

/** A document by its canonical text, without signatures. */
export function parseDocument(text) {
  try {
    return parsed(text);
  } catch (error) {
    throw new Refused('InvalidDocument', error.message);
  }
}

function parsed(text) {
  say(text.split(',').length <= 32769, 'too many commas');
  const fields = JSON.parse(text);
  say(text.isWellFormed() && canonical(fields) === text, 'a document that is not canonical JSON');
  checkFields(fields);
  const digest = sha256(utf8(text));
  const layouts = {};
  for (const [purpose, number] of Object.entries(PURPOSES)) {
    layouts[purpose] = layoutOf(fields, purpose, concat([2, number], digest, vector(utf8(fields.origin), 1)));
  }
  return { ...fields, text, digest, layouts };
}

/** A document whose signatures are good: by the service, and by the key that must have signed this version. */
export async function openDocument(text, { documentKey, originSignature, serviceKey, serviceSignature }) {
  const bytes = utf8(text);
  await checkSignature(serviceKey, 'maskedlark v2 published document', concat(bytes, originSignature), serviceSignature);
  await checkSignature(documentKey, 'maskedlark v2 parameter document', bytes, originSignature);
  const document = parseDocument(text);
  need(!same(unhex(document.request_key), documentKey), 'BadSignature', 'request_key is the key that signed the document');
  return document;
}

/** The next document of a chain, as the service sends it; `before` is null for the first, which the pinned key signs. */
export async function followDocument(data, before, { pinned, serviceKey }) {
  let message;
  try {
    message = JSON.parse(decodeText(data));
  } catch (error) {
    throw new Refused('InvalidDocument', error.message);
  }
  hasFields(message, ['document', 'origin_signature', 'service_signature']);
  const isSignature = (x) => typeof x === 'string' && /^[0-9a-f]{128}$/.test(x);
  say(isSignature(message.origin_signature) && (message.service_signature === null || isSignature(message.service_signature)), 'signatures');
  need(message.service_signature !== null, 'BadSignature', 'a document that the service did not countersign');
  const found = await openDocument(message.document, {
    documentKey: before === null ? pinned : unhex(before.document_key),
    originSignature: unhex(message.origin_signature),
    serviceKey,
    serviceSignature: unhex(message.service_signature),
  });
  need(before === null || found.origin === before.origin, 'BrokenChain', 'a document of another origin');
  need(before === null || found.version > before.version, 'RolledBack', 'a version that was seen before');
  const previous = before && hex(before.digest);
  need(found.version === (before?.version ?? 0) + 1 && found.previous === previous, 'BrokenChain', 'a version that does not follow');
  return found;
}
