/** The layers of the dashboard: the lint rule that keeps them apart, and the absence of import circles. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { ESLint } from 'eslint';
import { expect, test } from 'vitest';

const eslint = new ESLint();

/** Returns what the layer rule of eslint.config.js reports of a file with this content. */
async function lint(file: string, content: string): Promise<string[]> {
  const results = await eslint.lintText(content, { filePath: file });
  return results.flatMap(({ messages }) =>
    messages.filter(({ ruleId }) => ruleId === 'tidegate/layers').map(({ message }) => message),
  );
}

test.each([
  ['lib/state/one.ts', "import '../../features/nodes/describestore.ts';", 'lib/state is below features'],
  ['lib/state/one.ts', "import '../../routes/Nodes.svelte';", 'lib/state is below routes'],
  ['lib/api/one.ts', "export * from '../state/storage.ts';", 'lib/api is below lib/state'],
  ['lib/api/one.ts', "import '../../connect.ts';", 'lib/api is below app'],
  [
    'features/nodes/one.ts',
    "import '../clients/tags.ts';",
    'feature nodes must not import the feature clients',
  ],
  ['features/nodes/one.ts', "void import('../../routes/Nodes.svelte');", 'features is below routes'],
  ['lib/state/live/one.ts', "import '../session.svelte.ts';", 'must not import lib/state/session.svelte.ts'],
])('%s must not contain %s', async (file, content, fault) => {
  expect(await lint(`app/${file}`, content)).toEqual([expect.stringContaining(fault)]);
});

test('a component must not load another feature in its markup', async () => {
  const content = "{#await import('../clients/Tags.svelte') then one}{one}{/await}";
  expect(await lint('app/features/nodes/One.svelte', content)).toHaveLength(1);
});

test.each([
  ['features/nodes/one.ts', "import './describestore.ts'; import '../../lib/format/format.ts';"],
  ['routes/one.ts', "import '../features/nodes/describestore.ts'; import '../features/clients/tags.ts';"],
  ['lib/components/one.ts', "import '../state/storage.ts'; import 'svelte';"],
  ['main.ts', "import './shell/pages.ts'; import './lib/state/clock.svelte.ts';"],
])('%s may contain %s', async (file, content) => {
  expect(await lint(`app/${file}`, content)).toEqual([]);
});

/** Returns the files of a circle of imports; null if there is none. */
function circleIn(imports: Map<string, string[]>): string[] | null {
  const done = new Set<string>();
  const walk = (file: string, way: string[]): string[] | null => {
    if (way.includes(file)) return [...way.slice(way.indexOf(file)), file];
    if (done.has(file)) return null;
    for (const next of imports.get(file) ?? []) {
      const circle = walk(next, [...way, file]);
      if (circle) return circle;
    }
    done.add(file);
    return null;
  };
  for (const file of imports.keys()) {
    const circle = walk(file, []);
    if (circle) return circle;
  }
  return null;
}

test('no files of the dashboard import one another in a circle', () => {
  const files = readdirSync('app', { recursive: true, encoding: 'utf8' }).filter((file) =>
    /\.(ts|svelte)$/.test(file),
  );
  const imports = new Map(
    files.map((file) => {
      const sources = readFileSync(`app/${file}`, 'utf8').matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g);
      return [file, [...sources].map(([, source]) => path.join(path.dirname(file), source ?? ''))];
    }),
  );
  expect(imports.get('main.ts')).toContain('App.svelte');
  expect(circleIn(imports)).toBeNull();
  imports.get('lib/format/format.ts')?.push('main.ts');
  expect(circleIn(imports)).toContain('main.ts');
});
