// Uploads, and an ad server's check of each report in one.
import { Reader, concat, decodeText, hex, need, vector } from './bytes.mjs';
import { PURPOSES } from './document.mjs';

const MOST_REPORTS = 4096;
const MOST_BYTES = 4 * 1024 * 1024;

export function encodeUpload(reports) {
  need(reports.length >= 1 && reports.length <= MOST_REPORTS, 'WrongLength', `an upload has 1 to ${MOST_REPORTS} reports`);
  const body = concat([2], ...reports.map((report) => vector(report, 4)));
  need(body.length <= MOST_BYTES, 'WrongLength', 'an upload has at most 4 MiB');
  return body;
}

export function decodeUpload(body) {
  const reader = new Reader(body);
  reader.version();
  const reports = [];
  do {
    need(reports.length < MOST_REPORTS, 'WrongLength', `an upload has 1 to ${MOST_REPORTS} reports`);
    reports.push(reader.vector(4, 1, 1048576));
  } while (reader.left > 0);
  return reports;
}

/** Refuses a report that no document of the origin allows, else says which it is. `documents` are by digest. */
export function checkReport(report, origin, documents, now) {
  const reader = new Reader(report);
  reader.version();
  const number = reader.number(1);
  const purpose = Object.keys(PURPOSES).find((name) => PURPOSES[name] === number);
  need(purpose !== undefined, 'OutOfRange', `purpose ${number}`);
  const document = documents.get(hex(reader.take(32)));
  need(decodeText(reader.vector(1, 1, 253)) === origin, 'WrongOrigin', 'a report for another origin');
  need(document, 'later', 'a report under a document that is not known so far');
  const layout = document.layouts[purpose];
  need(layout, 'UndeclaredReport', 'a report for a purpose that its document does not declare');
  need(report.length === layout.reportBytes, 'WrongLength', `${report.length} bytes, not ${layout.reportBytes}`);
  const id = reader.take(16);
  const hour = reader.number(4);
  reader.take(32);
  const keyIds = layout.payloadBytes.map((size) => hex(reader.take(64 + size).subarray(0, 16)));
  need(new Set(keyIds).size === keyIds.length, 'DuplicateKey', 'two payloads for one key');
  const ahead = hour - Math.floor(now / 3600);
  need(ahead <= 48 && ahead >= -2160, 'WrongHour', 'an hour too far from now');
  return { document, purpose, id, hour };
}
