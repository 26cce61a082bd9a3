/**
 * Writes the types of the REST API from its OpenAPI document: `node scripts/types.js < openapi.json > app/lib/api/schema.ts`.
 * Only what our own document uses of JSON Schema is understood; anything else is an error.
 */
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const REF = '#/components/schemas/';
/** What says nothing about the type of a value. */
const IGNORED = new Set([
  ...['description', 'title', 'default', 'examples', 'example', 'format', 'pattern', 'deprecated'],
  ...[
    'minimum',
    'maximum',
    'exclusiveMinimum',
    'minLength',
    'maxLength',
    'minItems',
    'maxItems',
    'uniqueItems',
  ],
]);
const PLAIN = { string: 'string', integer: 'number', number: 'number', boolean: 'boolean', null: 'null' };

/** The whole file. */
export function typesOf(document) {
  const types = Object.entries(document.components.schemas)
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([name, schema]) => `${comment(schema, '')}export type ${name} = ${typeOf(schema, name)};\n`);
  return ['/** Generated from the OpenAPI document by `npm run types`. */\n', ...types].join('\n');
}

function typeOf(schema, where) {
  if (schema === true) return 'unknown';
  const known = (...names) => {
    const odd = Object.keys(schema).find((key) => !names.includes(key) && !IGNORED.has(key));
    if (odd) throw new Error(`${where}: ${odd} is not understood in ${JSON.stringify(schema)}`);
  };
  // What stands beside one another holds at once.
  const { $ref, anyOf, oneOf, allOf = [], ...own } = schema;
  const among = (parts) => `(${parts.map((part) => typeOf(part, where)).join(' | ')})`;
  const together = [
    ...($ref ? [$ref.slice(REF.length)] : []),
    ...[anyOf, oneOf].filter(Boolean).map(among),
    ...allOf.map((part) => typeOf(part, where)),
  ];
  if (together.length > 0) {
    if (Object.keys(own).some((name) => !IGNORED.has(name))) together.push(typeOf(own, where));
    return together.join(' & ');
  }
  if ('const' in schema) {
    known('const', 'type');
    return JSON.stringify(schema.const);
  }
  if (schema.enum) {
    known('enum', 'type');
    return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  }
  if (Array.isArray(schema.type)) {
    return schema.type.map((type) => typeOf({ ...schema, type }, where)).join(' | ');
  }
  if (schema.type === 'array') {
    known('type', 'items', 'prefixItems');
    if (schema.prefixItems) return `[${schema.prefixItems.map((item) => typeOf(item, where)).join(', ')}]`;
    return `(${typeOf(schema.items ?? true, where)})[]`;
  }
  if (schema.type === 'object' || schema.properties) {
    known('type', 'properties', 'required', 'additionalProperties');
    return objectOf(schema, where);
  }
  if (PLAIN[schema.type]) {
    return PLAIN[schema.type];
  }
  known();
  return 'unknown';
}

function objectOf({ properties = {}, required = [], additionalProperties }, where) {
  const fields = Object.entries(properties).map(([name, schema]) => {
    const mark = required.includes(name) ? '' : '?';
    const key = /^\w+$/.test(name) ? name : JSON.stringify(name);
    return `${comment(schema, '  ')}  ${key}${mark}: ${typeOf(schema, `${where}.${name}`)};`;
  });
  const more =
    additionalProperties && additionalProperties !== true ? typeOf(additionalProperties, where) : null;
  if (fields.length === 0) return `Record<string, ${more ?? 'unknown'}>`;
  return `{\n${fields.join('\n')}\n}${more ? ` & Record<string, ${more}>` : ''}`;
}

function comment(schema, indent) {
  const words = schema.description?.replaceAll('*/', '* /').replaceAll(/\s*\n\s*/g, ' ');
  return words ? `${indent}/** ${words} */\n` : '';
}

if (import.meta.url === pathToFileURL(process.argv[1]).href)
  process.stdout.write(typesOf(JSON.parse(readFileSync(0, 'utf8'))));
