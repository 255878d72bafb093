// Open columns: cells of keys (to aggregate), typed columns of a model (to train).
import { Reader, concat, decodeText, need, number, toBigInt, utf8 } from './bytes.mjs';

export const CELL = 65;
const NUMBER = 255;
const ABSENT = 2 ** 32 - 1;
const LARGEST = 2n ** 63n - 1n; // the magnitude of a number: -2^63 is none

export function encodeCell(key) {
  let content;
  if (typeof key === 'string') {
    const text = utf8(key);
    need(key.isWellFormed(), 'WrongType', 'a key that is not Unicode');
    need(text.length <= 64, 'WrongLength', 'a key of more than 64 bytes');
    content = concat([text.length], text);
  } else {
    need(typeof key === 'bigint' || Number.isSafeInteger(key), 'WrongType', 'a key that is neither text nor integer');
    need(BigInt(key) <= LARGEST && BigInt(key) >= -LARGEST, 'OutOfRange', 'a key of more than 63 bits');
    content = concat([NUMBER], number(key, 8));
  }
  return concat(content, new Uint8Array(CELL - content.length));
}

export function decodeCell(cell) {
  const kind = cell[0];
  need(kind <= 64 || kind === NUMBER, 'WrongType', 'a key that is neither text nor number');
  const end = 1 + (kind === NUMBER ? 8 : kind);
  need(cell.subarray(end).every((byte) => byte === 0), 'BadPadding', 'a key and then more');
  if (kind !== NUMBER) return decodeText(cell.subarray(1, end));
  const value = BigInt.asIntN(64, toBigInt(cell.subarray(1, end)));
  need(value >= -LARGEST, 'OutOfRange', 'a key of 64 bits');
  return value;
}

export const columnWidth = (column) =>
  ({ bytes: column.count, category: 4, bag: 4 * column.length })[column.kind];

export const columnsWidth = (columns) => columns.reduce((sum, column) => sum + columnWidth(column), 0);

/** Values by column: bytes, an index, or a list of indices in any order. */
export function encodeColumns(columns, values) {
  const encoded = columns.map((column, i) => {
    if (column.kind === 'bytes') return values[i];
    if (column.kind === 'category') return number(values[i], 4);
    const bag = [...values[i]].sort((a, b) => a - b);
    need(bag.length <= column.length, 'NotAsDeclared', 'a bag of too many');
    return concat(...Array.from({ length: column.length }, (_, j) => number(bag[j] ?? ABSENT, 4)));
  });
  const all = concat(...encoded);
  checkColumns(columns, all);
  return all;
}

export function checkColumns(columns, encoded) {
  need(encoded.length === columnsWidth(columns), 'NotAsDeclared', 'columns of another width');
  const reader = new Reader(encoded);
  for (const column of columns) {
    if (column.kind === 'bytes') {
      reader.take(column.count);
    } else if (column.kind === 'category') {
      need(reader.number(4) < column.size, 'NotAsDeclared', 'a category outside its size');
    } else {
      for (let last = 0, i = 0; i < column.length; i++) {
        const index = reader.number(4);
        // What is absent is larger than every index, so ascending order puts it last.
        need(index >= last && (index < column.size || index === ABSENT), 'NotAsDeclared', 'a bag out of order or size');
        last = index;
      }
    }
  }
}
