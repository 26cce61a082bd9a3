/** The change list in the browser's storage. */
// @vitest-environment happy-dom
import { flushSync } from 'svelte';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { changes } from '../app/lib/state/changes/changes.svelte.ts';
import { decide, isChanged, rebase, type Entry } from '../app/lib/state/changes/entry.ts';
import { read, remove, write } from '../app/lib/state/storage.ts';
import { item, layered, row, withLimit } from './samples.ts';

beforeEach(() => {
  localStorage.clear();
  changes.load('prod', 'ana');
});
afterEach(() => changes.leave());

function edit(rate: string): Entry {
  const entry = changes.open('tier', 'default', item(1, layered), 1);
  row(entry.form, 'minute').rate = rate;
  flushSync();
  return entry;
}

function reload(user = 'ana'): void {
  changes.leave();
  changes.load('prod', user);
}

test('an edit outlives a reload, also one that is not yet right', () => {
  edit('half ty');
  changes.message = 'because';
  flushSync();
  reload();
  expect(changes.changed).toHaveLength(1);
  expect(row(changes.changed[0]?.form ?? edit('').form, 'minute').rate).toBe('half ty');
  expect(changes.message).toBe('because');
});

test('an edit that was taken back is none', () => {
  edit('5/s');
  expect(changes.changed).toHaveLength(1);
  edit('1000 / 1m');
  expect(changes.changed).toHaveLength(0);
  reload();
  expect(changes.entries).toHaveLength(0);
});

test('each user has a list of their own', () => {
  edit('5/s');
  reload('ben');
  expect(changes.changed).toHaveLength(0);
  reload('ana');
  expect(changes.changed).toHaveLength(1);
});

test('dropping and clearing leave nothing behind', () => {
  changes.drop(edit('5/s'));
  reload();
  expect(changes.changed).toHaveLength(0);
  edit('5/s');
  changes.message = 'because';
  flushSync();
  changes.clear();
  expect(localStorage.length).toBe(0);
});

test('opening again keeps what was typed and takes what others published', () => {
  edit('5/s');
  const theirs = {
    ...layered,
    limits: layered.limits?.map((limit) => ({ ...limit, algorithm: 'token_bucket' })),
  };
  const entry = changes.open('tier', 'default', item(2, theirs as typeof layered), 2);
  expect(row(entry.form, 'minute')).toMatchObject({ rate: '5/s', algorithm: 'token_bucket' });
});

test('another tab of the same user writes the same list', () => {
  const entry = edit('5/s');
  const key = localStorage.key(0) ?? '';
  const there = JSON.parse(JSON.stringify(entry)) as Entry;
  row(there.form, 'minute').rate = '6/s';
  dispatchEvent(new StorageEvent('storage', { key, newValue: JSON.stringify(there) }));
  expect(row(entry.form, 'minute').rate).toBe('6/s');
  dispatchEvent(new StorageEvent('storage', { key, newValue: null }));
  expect(isChanged(entry)).toBe(false);
});

test('after deciding for them, what is typed is an edit again', () => {
  for (const path of ['limits/minute', '']) {
    const entry = edit('5/s');
    const there = item(2, withLimit('minute', { limit: 6 }));
    changes.set(entry, { ...rebase(entry, there, 'ben', 2), clashes: [] });
    changes.set(entry, decide(entry, path, 'theirs'));
    expect(isChanged(entry)).toBe(false);
    row(entry.form, 'minute').rate = '77 / 1m';
    expect(row(entry.base, 'minute').rate).toBe('6 / 1m');
    expect(isChanged(entry)).toBe(true);
    changes.drop(entry);
  }
});

test('a tab without a message leaves the one of another tab alone', () => {
  const key = 'tidegate.change:prod:ana:message';
  localStorage.setItem(key, 'from elsewhere');
  edit('5/s');
  expect(localStorage.getItem(key)).toBe('from elsewhere');
  changes.message = 'mine';
  flushSync();
  changes.message = '';
  flushSync();
  expect(localStorage.getItem(key)).toBeNull();
});

test('on a full disk the newest text is the one that is read', () => {
  const key = 'tidegate.change:prod:ana:message';
  vi.stubGlobal('localStorage', {
    getItem: () => 'old',
    setItem: () => {
      throw new Error('full');
    },
    removeItem: () => undefined,
  });
  expect(write(key, 'new')).toBe(false);
  expect(read(key)).toBe('new');
  remove(key);
  vi.unstubAllGlobals();
});
