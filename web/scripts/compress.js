/** Writes a brotli form beside each text file of dist/, for the server to send as it is. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { brotliCompressSync, constants } from 'node:zlib';

const folder = new URL('../dist/', import.meta.url);
for (const path of readdirSync(folder, { recursive: true })) {
  if (!/\.(html|js|css|svg)$/.test(path)) continue;
  const file = new URL(path.replaceAll('\\', '/'), folder);
  const plain = readFileSync(file);
  const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: plain.length };
  const packed = brotliCompressSync(plain, { params });
  if (packed.length < plain.length) writeFileSync(new URL(`${file.href}.br`), packed);
}
