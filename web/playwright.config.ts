/**
 * End-to-end tests against the real binary, whose path is in TIDEGATE_BIN; e2e/prepare.ts makes the data folder that it
 * starts from. Counts go to test-results/e2e.json.
 */
import { existsSync } from 'node:fs';
import { defineConfig } from '@playwright/test';

const DEBIAN_CHROMIUM = '/usr/bin/chromium';
const executablePath = process.env['TIDEGATE_CHROMIUM'] ?? DEBIAN_CHROMIUM;

export default defineConfig({
  testDir: 'e2e',
  globalSetup: './e2e/prepare.ts',
  outputDir: 'test-results/e2e',
  fullyParallel: true,
  workers: 2,
  forbidOnly: true,
  timeout: 60_000,
  expect: { timeout: 10_000 },
  reporter: [['list'], ['json', { outputFile: 'test-results/e2e.json' }]],
  use: {
    locale: 'en-US',
    timezoneId: 'UTC',
    viewport: { width: 1200, height: 800 },
    launchOptions: {
      ...(existsSync(executablePath) ? { executablePath } : {}),
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
