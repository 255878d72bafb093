// Reads a job (JSON) from standard input, writes an upload with a report for each of its records to standard output.
import { text } from 'node:stream/consumers';
import { Refused, need, unhex } from './bytes.mjs';
import { checkColumns } from './columns.mjs';
import { openDocument } from './document.mjs';
import { currentKey, readKeys } from './keys.mjs';
import { attributed, cutValues, trueLabel } from './labels.mjs';
import { addFeatureNoise } from './noise.mjs';
import { system as random } from './random.mjs';
import { makeReport } from './report.mjs';
import { encodeUpload } from './upload.mjs';

// Node 20 calls WebCrypto's Curve25519 experimental, on the standard error that is for our one sentence.
process.removeAllListeners('warning');

function checkRecord({ conversions = 0, real }) {
  need(Number.isSafeInteger(conversions), 'OutOfRange', 'conversions are an integer of at most 53 bits');
  need(typeof real === 'boolean', 'WrongType', 'a record is real or not');
}

function aggregateRecord(document, record) {
  checkRecord(record);
  const { keys, values, real } = record;
  const declared = document.keys.every((name) => Object.hasOwn(keys, name));
  need(declared && Object.keys(keys).length === document.keys.length, 'NotAsDeclared', 'a record must have exactly the declared keys');
  return { keys: document.keys.map((name) => keys[name]), values: cutValues(document.values, attributed([values])), real };
}

function trainRecord(document, record) {
  checkRecord(record);
  const { tag, columns, values, conversions, real } = record;
  const model = document.models.find((declared) => declared.tag === tag);
  need(model, 'NotAsDeclared', `there is no model ${tag}`);
  checkColumns(model.columns, unhex(columns));
  const labels = model.labels.map((label) => trueLabel(label, document.values, attributed([values]), conversions));
  // A source's columns get their noise once, before anything is reported.
  return { tag, columns: addFeatureNoise(model, unhex(columns), random), labels, real };
}

async function main() {
  const job = JSON.parse(await text(process.stdin));
  const document = await openDocument(job.document, {
    documentKey: unhex(job.signatures.document_key),
    originSignature: unhex(job.signatures.origin_signature),
    serviceKey: unhex(job.signatures.service_key),
    serviceSignature: unhex(job.signatures.service_signature),
  });
  need(job.keys.length === document.helpers.length, 'WrongLength', 'one key configuration for each helper is needed');
  const keys = [];
  for (const [place, { name, identity }] of document.helpers.entries()) {
    keys.push(currentKey(await readKeys(unhex(job.keys[place]), name, unhex(identity)), job.now));
  }
  const how = { hour: Math.floor(job.now / 3600), keys, random };
  const reports = [];
  for (const record of job.aggregate) {
    reports.push((await makeReport(document, 'aggregate', aggregateRecord(document, record), how)).report);
  }
  for (const record of job.train) {
    reports.push((await makeReport(document, 'train', trainRecord(document, record), how)).report);
  }
  process.stdout.write(encodeUpload(reports));
}

main().catch((error) => {
  const why = error instanceof Refused ? error.message : `the job is not as it should be: ${error.message.replace(/\s+/g, ' ')}`;
  process.stderr.write(`No upload was made: ${why} (${error.name}).\n`);
  process.exitCode = 1;
});
