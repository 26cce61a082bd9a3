/**
 * End-to-end tests against the real binary, whose path is in TIDEGATE_BIN; e2e/prepare.ts makes the data folder that it
 * starts from. Counts go to test-results/e2e.json.
 */
import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { defineConfig } from '@playwright/test';

/** Debian's packages. The shell has no window, and needs half the processor time of the whole browser. */
const DEBIAN_CHROMIUMS = ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium'];
const executablePath = process.env['TIDEGATE_CHROMIUM'] ?? DEBIAN_CHROMIUMS.find((path) => existsSync(path));

/** The run that guards a merge leaves out the tests with this tag: see `npm run e2e:all`. */
const ALL_ONLY = /@all\b/;
const runsAll = 'TIDEGATE_E2E_ALL' in process.env || 'TIDEGATE_PICTURES' in process.env;

/** Tests that wait for long: they begin first, so that others run beside them. */
const LONG = /(still|soak|scripts|loss|tabs|nodes|looks-simulator|clients-scale)\.spec\.ts$/;
/** Pages and servers wait more than they work. Where all tests run, their waits have limits of an idle machine. */
const WORKERS_PER_CORE = runsAll ? 1 : 2;
const WORKERS_MAX = 8;

export default defineConfig({
  testDir: 'e2e',
  globalSetup: './e2e/prepare.ts',
  outputDir: 'test-results/e2e',
  metadata: { runsAll },
  ...(runsAll ? {} : { grepInvert: ALL_ONLY }),
  fullyParallel: true,
  workers: Math.min(WORKERS_MAX, WORKERS_PER_CORE * availableParallelism()),
  projects: [
    { name: 'long', testMatch: LONG },
    { name: 'others', testIgnore: LONG },
  ],
  forbidOnly: true,
  // Generous limits: each wait ends with the event that it is for.
  timeout: 180_000,
  expect: { timeout: runsAll ? 10_000 : 30_000 },
  reporter: [['list'], ['json', { outputFile: 'test-results/e2e.json' }]],
  use: {
    locale: 'en-US',
    timezoneId: 'UTC',
    viewport: { width: 1200, height: 800 },
    launchOptions: {
      ...(executablePath === undefined ? {} : { executablePath }),
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
      ],
    },
  },
});
