/** The questions of the publish panel. */
// @vitest-environment happy-dom
import { mount, unmount } from 'svelte';
import { expect, test } from 'vitest';
import Conflicts from '../app/features/publish/Conflicts.svelte';
import { entryOf, rebase } from '../app/lib/state/changes/entry.ts';
import { item, key, layered, row, withLimit } from './samples.ts';

test('for an object that is gone there is only what can be done', () => {
  const gone = rebase(entryOf(key, item(1, layered), 1), null, '', 2);
  const panel = mount(Conflicts, {
    target: document.body,
    props: { entries: [gone], choices: {}, missing: false },
  });
  const buttons = [...document.querySelectorAll('button')].map((button) => button.textContent);
  expect(buttons).toEqual(['Create it anew', 'Drop my change']);
  expect(document.body.textContent).toContain('Someone deleted tier layered');
  void unmount(panel);
});

test('tiers of one name in two domains are two questions', () => {
  const entries = ['default', 'eu'].map((domain) => {
    const mine = entryOf({ ...key, domain }, item(1, layered), 1);
    row(mine.form, 'minute').rate = '5 / 1m';
    return rebase(mine, item(2, withLimit('minute', { limit: 6 })), 'ben', 2);
  });
  const panel = mount(Conflicts, { target: document.body, props: { entries, choices: {}, missing: false } });
  const names = [...document.querySelectorAll('input')].map(({ name }) => name);
  expect(new Set(names).size).toBe(2);
  expect([...document.querySelectorAll('legend')].map(({ textContent }) => textContent)).toEqual([
    'tier layered, minute rate',
    'tier layered of eu, minute rate',
  ]);
  void unmount(panel);
});
