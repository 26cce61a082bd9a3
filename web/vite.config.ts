/** Builds the page into dist/. Imports only what `npm ci --omit=dev` installs, because cargo builds it so. */
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// Where `npm run dev` finds a running admin server.
const admin = process.env.TIDEGATE_ADMIN ?? 'http://127.0.0.1:8080';

export default defineConfig({
  root: 'app',
  plugins: [svelte({ configFile: '../svelte.config.js' })],
  build: {
    outDir: '../dist',
    emptyOutDir: true,
    target: 'es2022',
    // The content security policy allows no inline script.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    // Few files: each costs the first load more than what is in it.
    cssCodeSplit: false,
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: 'start', tags: ['$initial'], priority: 1 },
            // Editors and the simulator read these together.
            {
              name: 'policy',
              test: /lib[\\/](policy[\\/](value|faults|ruletext)|text[\\/]rules)\.ts/,
              minShareCount: 2,
            },
            { name: 'shared', test: /app[\\/]/, minShareCount: 14 },
          ],
        },
      },
    },
  },
  server: {
    proxy: { '/api': { target: admin, changeOrigin: true }, '/docs': { target: admin, changeOrigin: true } },
  },
});
