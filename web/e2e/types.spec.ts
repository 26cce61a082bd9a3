/** The types of the calls are those that the server's own document gives. */
import { readFile } from 'node:fs/promises';
import { format, resolveConfig } from 'prettier';
import { typesOf } from '../scripts/types.js';
import { expect, readOnly } from './fixtures.ts';

readOnly('the types are not older than the API', async ({ admin }) => {
  const document: unknown = await (await admin.request.get('/api/v1/openapi.json')).json();
  const file = 'app/lib/api/schema.ts';
  const options = await resolveConfig(file);
  const now = await format(typesOf(document), { ...options, filepath: file });
  expect(await readFile(file, 'utf8'), 'npm run types < openapi.json writes them').toBe(now);
});
