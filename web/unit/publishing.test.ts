/** Publishing the change list: what is sent, what is sent again, and what others did meanwhile. */
// @vitest-environment happy-dom
import { flushSync } from 'svelte';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { ChangeList } from '../app/lib/api/types.ts';
import { changes } from '../app/lib/state/changes/changes.svelte.ts';
import { openClashes } from '../app/lib/state/changes/entry.ts';
import { publishAll } from '../app/lib/state/changes/publishing.ts';
import { grammar, item, layered, row, withLimit } from './samples.ts';

let answers: (Response | null)[];
let calls: { list: ChangeList; key: string | undefined }[];

beforeEach(() => {
  localStorage.clear();
  [answers, calls] = [[], []];
  changes.load(null, 'ana');
  const entry = changes.open('tier', 'default', item(1, layered), 1);
  row(entry.form, 'minute').rate = '5 / 1m';
  flushSync();
  vi.stubGlobal('fetch', (_url: string, init: RequestInit) => {
    const headers = init.headers as Record<string, string>;
    calls.push({ list: JSON.parse(init.body as string) as ChangeList, key: headers['idempotency-key'] });
    const answer = answers.shift();
    return answer ? Promise.resolve(answer) : Promise.reject(new TypeError());
  });
});
afterEach(() => {
  changes.leave();
  vi.unstubAllGlobals();
});

const meant = () => Promise.resolve(true);

function json(status: number, body: unknown): Response {
  return new Response(JSON.stringify(body), { status });
}
function done(version: number): Response {
  const touched = { kind: 'tier', domain: 'default', id: 'layered', etag: `"tier:layered:${version}"` };
  return json(201, { version, sha256: '', on_top_of: null, changes: [touched] });
}
function conflict(present: unknown, version = 2): Response {
  const one = { kind: 'tier', domain: 'default', id: 'layered', present, changed_by: 'ben', version };
  return json(412, { code: 'conflict', status: 412, title: 'Conflict', conflicts: [one] });
}

test('the list goes out once, with base and tags, and is empty afterwards', async () => {
  answers = [done(2)];
  expect(await publishAll('why', grammar, meant)).toMatchObject({
    what: 'published',
    answer: { version: 2 },
  });
  expect(calls[0]?.list).toMatchObject({
    base_version: 1,
    message: 'why',
    if_match: { 'tier:layered': '"tier:layered:1"' },
    changes: [
      { op: 'put', kind: 'tier', domain: 'default', id: 'layered', value: withLimit('minute', { limit: 5 }) },
    ],
  });
  expect(changes.changed).toHaveLength(0);
  expect(await publishAll('why', grammar, meant)).toEqual({ what: 'nothing' });
});

test('a conflict in other fields is merged and published on top, silently', async () => {
  answers = [conflict(item(2, withLimit('second', { burst: 30 }))), done(3)];
  expect(await publishAll('why', grammar, meant)).toMatchObject({
    what: 'published',
    merged: [{ id: 'layered' }],
  });
  expect(calls[1]?.list.if_match).toEqual({ 'tier:layered': '"tier:layered:2"' });
  expect(calls[1]?.list.changes[0]?.value).toMatchObject({ limits: [{ burst: 30 }, { limit: 5 }] });
  expect(calls[1]?.key).not.toBe(calls[0]?.key);
});

test('what was merged is looked at before it is sent', async () => {
  answers = [conflict(item(2, withLimit('second', { burst: 30 })))];
  const looked: ChangeList[] = [];
  const isMeant = (list: ChangeList) => Promise.resolve(looked.push(list) === 1);
  expect(await publishAll('why', grammar, isMeant)).toEqual({ what: 'unmeant' });
  expect(calls).toHaveLength(1);
  expect(looked[1]?.changes[0]?.value).toMatchObject({ limits: [{ burst: 30 }, { limit: 5 }] });
});

test('a conflict in the same field is for a person, and nothing is lost', async () => {
  answers = [conflict(item(2, withLimit('minute', { limit: 6 })))];
  expect(await publishAll('why', grammar, meant)).toEqual({ what: 'clash' });
  const [entry] = changes.changed;
  expect(entry && openClashes(entry)).toMatchObject([{ theirs: '6 / 1m', yours: '5 / 1m' }]);
  expect(await publishAll('why', grammar, meant)).toEqual({ what: 'clash' });
  expect(calls).toHaveLength(1);
});

test('an object that is gone is for a person too', async () => {
  answers = [conflict(null)];
  expect(await publishAll('why', grammar, meant)).toEqual({ what: 'clash' });
  expect(changes.changed[0]).toMatchObject({ deleted: true });
});

test('after a lost answer the same list has the same key, after a refusal a new one', async () => {
  answers = [null, json(422, { code: 'invalid', status: 422, title: 'No' }), done(2)];
  expect(await publishAll('why', grammar, meant)).toEqual({ what: 'unreachable' });
  expect(await publishAll('why', grammar, meant)).toMatchObject({ what: 'refused' });
  await publishAll('why', grammar, meant);
  const [lost, refused, last] = calls;
  expect(lost?.key).toBeTruthy();
  expect(refused?.key).toBe(lost?.key);
  expect(last?.key).not.toBe(lost?.key);
});

test("the server's words stand at the field that they are about", async () => {
  const errors = [
    { pointer: '/changes/0/value/limits/1/period', code: 'x', message: 'too long' },
    { pointer: '/message', code: 'x', message: 'no' },
  ];
  answers = [json(422, { code: 'invalid', status: 422, title: 'No', errors })];
  const outcome = await publishAll('why', grammar, meant);
  const [entry] = changes.changed;
  expect(entry?.refused).toEqual({ '2/rate': 'too long' });
  expect(outcome).toMatchObject({
    what: 'refused',
    faults: [
      { message: 'too long', entry: { id: 'layered' }, place: '2/rate' },
      { message: 'no', entry: null, place: null },
    ],
  });
});

test('who loses the race each time is told so', async () => {
  answers = [2, 3, 4, 5, 6].map((version) =>
    conflict(item(version, withLimit('second', { burst: 28 + version })), version),
  );
  expect(await publishAll('why', grammar, meant)).toEqual({ what: 'outrun' });
  expect(calls).toHaveLength(5);
});

test('an answer that is cut off counts as none', async () => {
  answers = [new Response('{"version":', { status: 201 })];
  expect(await publishAll('why', grammar, meant)).toEqual({ what: 'unreachable' });
});

test('a merge that leaves faults is for a person', async () => {
  const ids = ['third', 'fourth'];
  const more = ids.map((id) => ({ id, algorithm: 'fixed_window', limit: 1, period: '1s' }));
  answers = [conflict(item(2, { ...layered, limits: [...(layered.limits ?? []), ...more] }))];
  expect(await publishAll('why', grammar, meant)).toEqual({ what: 'unready' });
});
