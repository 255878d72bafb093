// The files of vectors, and a test for each vector.
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';

export const folder = process.env.VECTORS ?? fileURLToPath(new URL('../../vectors/v2', import.meta.url));
export const read = (name) => JSON.parse(readFileSync(`${folder}/${name}.json`, 'utf8'));
export const texts = (elements) => elements.map(String);

export const files = new Set();

/** One test for each vector of a file. */
export const each = (name, title, check) => {
  files.add(`${name}.json`);
  describe(name, () => read(name).forEach((v, i) => it(`${i}: ${title(v)}`, () => check(v))));
};
