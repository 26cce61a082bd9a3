/**
 * Unit tests. Most are of pure modules and run without a page, whose set-up takes longer than the tests; a file that needs
 * one says so with `@vitest-environment happy-dom`. Counts go to test-results/unit.json.
 */
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  plugins: [svelte()],
  resolve: { conditions: ['browser'] },
  test: {
    environment: 'node',
    // Generous: no test waits for time, and other work may have the processor.
    testTimeout: 60_000,
    include: ['unit/**/*.test.ts'],
    reporters: ['default', 'json'],
    outputFile: { json: 'test-results/unit.json' },
  },
});
