/**
 * Checks types, lint rules and format at the same time, and prints what each found. Ends with status 1 if one failed.
 * What did not change since the last check is taken from caches in node_modules/.cache.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';

const CACHE = 'node_modules/.cache';
const CHECKS = [
  ['svelte-check', '--tsconfig', './tsconfig.json', '--fail-on-warnings'],
  [
    'eslint',
    '.',
    '--max-warnings',
    '0',
    '--cache',
    '--cache-strategy',
    'content',
    '--cache-location',
    `${CACHE}/eslint/`,
  ],
  [
    'prettier',
    '--check',
    '.',
    '--cache',
    '--cache-strategy',
    'content',
    '--cache-location',
    `${CACHE}/prettier/check`,
  ],
];

/** Runs one check. Returns whether it found nothing. */
async function passes([command, ...args]) {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (bytes) => (output += bytes));
  const [status] = await once(child, 'close');
  process.stdout.write(`${command}: ${status === 0 ? 'passed' : 'failed'}\n${output.trim()}\n`);
  return status === 0;
}

const results = await Promise.all(CHECKS.map(passes));
process.exitCode = results.every(Boolean) ? 0 : 1;
