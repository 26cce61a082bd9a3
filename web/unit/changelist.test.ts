/** What is created and deleted: in the list, and when others did something else meanwhile. */
// @vitest-environment happy-dom
import { flushSync } from 'svelte';
import { beforeEach, expect, test } from 'vitest';
import type { Rule } from '../app/lib/api/types.ts';
import { copyForm, formOf } from '../app/lib/policy/form.ts';
import { changeListOf } from '../app/lib/state/changes/changelist.ts';
import { changes } from '../app/lib/state/changes/changes.svelte.ts';
import {
  anew,
  decide,
  isChanged,
  isClashing,
  newEntry,
  openClashes,
  rebase,
} from '../app/lib/state/changes/entry.ts';
import { entry, form, grammar, item, key, layered, row, withLimit } from './samples.ts';

const rule: Rule = { id: 'search', endpoint: '/search', per: 'ip', limits: layered.limits ?? [] };

beforeEach(() => {
  localStorage.clear();
  changes.leave();
  changes.load(null, 'ana');
});

test('one list creates, edits and deletes objects of all kinds, domains first', () => {
  changes.create('rule', 'eu', 'search', formOf('rule', rule), 4);
  changes.create('domain', 'eu', 'eu', formOf('domain', { timezone: 'Europe/Berlin' }), 4);
  changes.delete('tier', 'default', item(3, layered), 4);
  const client = { kind: 'user', value: 'ada', tier: 'pro' };
  const edited = changes.open('client', 'default', { ...item(2, layered), id: 'user:ada', value: client }, 4);
  edited.form.fields['tier'] = 'free';
  const list = changeListOf(changes.changed, 'why', grammar);
  expect(list?.changes).toEqual([
    { op: 'create', kind: 'domain', domain: 'eu', id: 'eu', value: { timezone: 'Europe/Berlin' } },
    { op: 'create', kind: 'rule', domain: 'eu', id: 'search', value: rule },
    { op: 'delete', kind: 'tier', domain: 'default', id: 'layered' },
    { op: 'put', kind: 'client', domain: 'default', id: 'user:ada', value: { ...client, tier: 'free' } },
  ]);
  expect(Object.keys(list?.if_match ?? {})).toEqual(['tier:layered', 'client:user:ada']);
});

test('how quota carries over is told of limits that are there', () => {
  const mine = entry();
  mine.carry = { minute: 'reset', gone: 'proportional' };
  expect(changeListOf([mine], 'why', grammar)?.carry).toEqual({ 'default/tier:layered/minute': 'reset' });
});

test('another name goes beside the object, and its limits begin anew', () => {
  const mine = entry((form) => {
    form.fields['rename'] = 'stacked';
    form.fields['description'] = 'two at once';
  });
  mine.carry = { minute: 'reset' };
  expect(isChanged(mine)).toBe(true);
  const value = { ...layered, description: 'two at once' };
  expect(changeListOf([mine], 'why', grammar)).toMatchObject({
    changes: [{ op: 'put', kind: 'tier', id: 'layered', value, rename: 'stacked' }],
    if_match: { 'tier:layered': '"tier:layered:1"' },
    carry: {},
  });
  const again = anew(rebase(mine, null, 'ben', 2));
  expect(changeListOf([again], 'why', grammar)?.changes[0]).not.toHaveProperty('rename');
});

test('what is to be new and is there by now becomes an edit, with what differs for a person', () => {
  const mine = newEntry(key, copyForm(form()), 1);
  expect(rebase(mine, null, '', 2)).toMatchObject({ op: 'create', version: 2 });
  const both = rebase(mine, item(2, withLimit('minute', { limit: 7 })), 'ben', 2);
  expect(both).toMatchObject({ op: 'put', etag: '"tier:layered:2"' });
  expect(openClashes(both)).toMatchObject([
    { path: 'limits/minute/rate', base: null, theirs: '7 / 1m', yours: '1000 / 1m' },
  ]);
});

test('a deletion of what others changed is for a person, one of what they deleted is none', () => {
  const mine = { ...entry(), op: 'delete' as const };
  const moved = rebase(mine, item(2, withLimit('minute', { limit: 7 })), 'ben', 2);
  expect(isClashing(moved)).toBe(true);
  expect(decide(moved, '', 'yours')).toMatchObject({ op: 'delete', etag: '"tier:layered:2"', clashes: [] });
  expect(isChanged(decide(moved, '', 'theirs'))).toBe(false);
  expect(isChanged(rebase(mine, null, 'ben', 2))).toBe(false);
});

test('what others deleted is created anew as it was edited', () => {
  const mine = entry((form) => (row(form, 'minute').rate = '5 / 1m'));
  const again = anew(rebase(mine, null, 'ben', 2));
  expect(isClashing(again)).toBe(false);
  expect(changeListOf([again], 'why', grammar)).toMatchObject({
    changes: [{ op: 'create', value: withLimit('minute', { limit: 5 }) }],
    if_match: {},
  });
});

test('a new object outlives a reload, and ends in all tabs', () => {
  changes.create('rule', 'default', 'search', formOf('rule', rule), 1);
  flushSync();
  changes.leave();
  changes.load(null, 'ana');
  expect(changes.changed).toMatchObject([{ op: 'create', kind: 'rule', id: 'search' }]);
  dispatchEvent(new StorageEvent('storage', { key: 'tidegate.change::ana:rule:search', newValue: null }));
  expect(changes.entries).toEqual([]);
});

test('two who make one whole of two forms', () => {
  const mine = entry((form) => (form.fields['label'] = 'mine'));
  const theirs = item(2, { id: 'layered', unlimited: true });
  const both = rebase(mine, theirs, 'ben', 2);
  expect(openClashes(both)).toEqual([]);
  expect(both.form.fields).toMatchObject({ label: 'mine', unlimited: true });
});
