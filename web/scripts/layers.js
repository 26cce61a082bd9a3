/** The lint rule that keeps the layers of app/ apart. `unit/layers.test.ts` proves that it can fail. */
import path from 'node:path';

/** Layers from the lowest to the highest. A file imports from its own layer and from lower ones. */
const LAYERS = [
  'lib/dom',
  'lib/format',
  'lib/text',
  'lib/api',
  'lib/policy',
  'lib/state',
  'lib/components',
  'lib/charts',
  'features',
  'routes',
  'shell',
];

/** Parts of lib/state that import nothing of one another: `app/connect.ts` connects them. */
const APART = ['lib/state/session.svelte.ts', 'lib/state/changes/', 'lib/state/live/'];

/** Returns the rank of a file of app/. Files outside every layer compose the others. */
function rankOf(file) {
  const rank = LAYERS.findIndex((layer) => file.startsWith(`${layer}/`));
  if (rank < 0 && file.startsWith('lib/')) throw new Error(`${file} is in no layer of scripts/layers.js`);
  return rank < 0 ? LAYERS.length : rank;
}

/** Returns why one file of app/ must not import another; null if it may. */
function faultOf(from, to) {
  if (rankOf(to) > rankOf(from))
    return `${LAYERS[rankOf(from)]} is below ${LAYERS[rankOf(to)] ?? 'app'} and must not import it`;
  const features = [from, to].map((file) => /^features\/([^/]+)\//.exec(file)?.[1]);
  if (features[0] && features[1] && features[0] !== features[1])
    return `the feature ${features[0]} must not import the feature ${features[1]}: what both need belongs in lib`;
  const parts = [from, to].map((file) => APART.find((part) => file.startsWith(part)));
  if (parts[0] && parts[1] && parts[0] !== parts[1])
    return `${parts[0]} must not import ${parts[1]}: app/connect.ts connects them`;
  return null;
}

export default {
  meta: { type: 'problem', schema: [] },
  create(context) {
    const app = path.join(context.cwd, 'app');
    const from = path.relative(app, context.filename);
    const check = (node) => {
      const source = node.source?.value;
      if (typeof source !== 'string' || !source.startsWith('.')) return;
      const message = faultOf(from, path.relative(app, path.resolve(path.dirname(context.filename), source)));
      if (message !== null) context.report({ node, message });
    };
    return {
      ImportDeclaration: check,
      ImportExpression: check,
      ExportNamedDeclaration: check,
      ExportAllDeclaration: check,
    };
  },
};
