/** Lint rules: the recommended ones of each tool, type-aware, and what this code base bans. */
import svelte from 'eslint-plugin-svelte';
import globals from 'globals';
import ts from 'typescript-eslint';
import layers from './scripts/layers.js';
import svelteConfig from './svelte.config.js';

export default ts.config(
  { ignores: ['node_modules', 'dist', '.build', 'test-results', 'playwright-report', 'screenshots'] },
  ...ts.configs.strict,
  ...svelte.configs.recommended,
  { languageOptions: { globals: { ...globals.browser, ...globals.node } } },
  {
    files: ['**/*.svelte', '**/*.svelte.ts'],
    languageOptions: { parserOptions: { parser: ts.parser, svelteConfig } },
  },
  {
    rules: {
      'no-console': 'error',
      eqeqeq: 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      // Addresses are plain strings here: there is no framework router whose resolver could be meant.
      'svelte/no-navigation-without-resolve': 'off',
    },
  },
  {
    files: ['app/**'],
    plugins: { tidegate: { rules: { layers } } },
    rules: {
      'tidegate/layers': 'error',
      'no-restricted-globals': [
        'error',
        { name: 'fetch', message: 'app/lib/api/request.ts makes every call to the server' },
        { name: 'localStorage', message: 'app/lib/state/storage.ts: storage may be full, or forbidden' },
      ],
    },
  },
  {
    files: ['app/lib/api/request.ts', 'app/lib/state/storage.ts'],
    rules: { 'no-restricted-globals': 'off' },
  },
);
