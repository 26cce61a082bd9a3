/** An edited object while others publish. */
import { expect, test } from 'vitest';
import {
  decide,
  entryOf,
  isChanged,
  nameOf,
  openClashes,
  parseEntry,
  placeAt,
  rebase,
  settled,
} from '../app/lib/state/changes/entry.ts';
import { entry, form, item, key, layered, row, withLimit } from './samples.ts';

test('an entry is a change as long as it says something else', () => {
  const typed = entry((form) => (row(form, 'minute').rate = '5'));
  expect(isChanged(typed)).toBe(true);
  row(typed.form, 'minute').rate = '1000/1m';
  expect(isChanged(typed)).toBe(false);
});

test('what was not touched follows them, and says who', () => {
  const mine = entry((form) => (row(form, 'minute').rate = '5 / 1m'));
  const after = rebase(mine, item(2, withLimit('second', { burst: 30 })), 'ben', 2);
  expect(after).toMatchObject({ version: 2, etag: '"tier:layered:2"', theirs: { by: 'ben', version: 2 } });
  expect(after.taken).toEqual({ 'limits/second/burst': 'ben' });
  expect(row(after.form, 'second').burst).toBe('30');
  expect(row(after.form, 'minute').rate).toBe('5 / 1m');
  expect(openClashes(after)).toEqual([]);
});

test('a clash stays open over a second publish, keeps its base, and closes by itself when both agree', () => {
  const mine = entry((form) => (row(form, 'minute').rate = '5 / 1m'));
  const once = rebase(mine, item(2, withLimit('minute', { limit: 6 })), 'ben', 2);
  const other = rebase(once, item(3, withLimit('minute', { limit: 6, algorithm: 'token_bucket' })), 'ben', 3);
  expect(openClashes(other)).toEqual([
    { path: 'limits/minute/rate', base: '1000 / 1m', theirs: '6 / 1m', yours: '5 / 1m' },
  ]);
  const twice = rebase(
    other,
    item(4, withLimit('minute', { limit: 7, algorithm: 'token_bucket' })),
    'ben',
    4,
  );
  expect(openClashes(twice)).toMatchObject([{ base: '1000 / 1m', theirs: '7 / 1m', yours: '5 / 1m' }]);
  row(twice.form, 'minute').rate = '7/m';
  expect(openClashes(twice)).toEqual([]);
});

test('a clash is decided for one side', () => {
  const mine = entry((form) => (row(form, 'minute').rate = '5 / 1m'));
  const both = rebase(mine, item(2, withLimit('minute', { limit: 6 })), 'ben', 2);
  const path = 'limits/minute/rate';
  expect(row(decide(both, path, 'yours').form, 'minute').rate).toBe('5 / 1m');
  expect(row(decide(both, path, 'theirs').form, 'minute').rate).toBe('6 / 1m');
  expect(decide(both, path, 'yours').clashes).toEqual([]);
});

test('the same object under the same tag changes nothing; a deleted one is marked', () => {
  const mine = entry((form) => (row(form, 'minute').rate = '5 / 1m'));
  expect(rebase(mine, item(1, layered), 'ben', 9)).toEqual({ ...mine, version: 9 });
  expect(rebase(mine, null, 'ben', 2)).toMatchObject({ deleted: true, form: mine.form });
});

test('after publishing only what was typed since is left', () => {
  const mine = entry((form) => (row(form, 'minute').rate = '5 / 1m'));
  const sent = structuredClone(mine.form);
  row(mine.form, 'second').burst = '99';
  const after = settled(mine, sent, '"new"', 2);
  expect(after).toMatchObject({ etag: '"new"', version: 2 });
  expect(isChanged(after)).toBe(true);
  expect(isChanged({ ...after, form: sent })).toBe(false);
});

test('names and pointers', () => {
  expect(nameOf(entry())).toBe('tier:layered');
  expect(nameOf(entryOf({ ...key, domain: 'eu' }, item(1, layered), 1))).toBe('eu/tier:layered');
  expect(placeAt(form(), '/limits/1/burst')).toBe('2/burst');
  expect(placeAt(form(), '/limits/0/max_debt')).toBe('1/max_debt');
  expect(placeAt(form(), '/limits/0/period')).toBe('1/rate');
  expect(placeAt(form(), '/limits/0')).toBe('1/rate');
  expect(placeAt(form(), '/limits/9/id')).toBe('limits');
  expect(placeAt(form(), '/limits')).toBe('limits');
  expect(placeAt(form(), '/id')).toBeNull();
});

test('only what is an entry is read back', () => {
  const kept = entry((form) => (row(form, 'minute').rate = 'half ty'));
  expect(parseEntry(JSON.stringify(kept))).toEqual(kept);
  for (const text of ['', 'null', '{}', 'raise pro', '{"kind":"tier","id":"x"}'])
    expect(parseEntry(text)).toBeNull();
});

test('an answer that came late changes nothing', () => {
  const newest = rebase(entry(), item(3, withLimit('minute', { limit: 6 })), 'ben', 3);
  expect(rebase(newest, item(2, withLimit('minute', { limit: 7 })), 'cat', 3)).toEqual(newest);
  expect(settled(newest, form(), '"tier:layered:2"', 2)).toEqual(newest);
});
