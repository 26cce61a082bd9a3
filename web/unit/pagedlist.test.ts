/** A list that is read page by page. */
import { expect, test } from 'vitest';
import { PagedList } from '../app/lib/state/pagedlist.svelte.ts';

function list() {
  const asked: (string | null)[] = [];
  const pages = new PagedList<number>((cursor) => {
    asked.push(cursor);
    const from = Number(cursor ?? 0);
    return Promise.resolve({ items: [from, from + 1], next: from >= 2 ? null : String(from + 2) });
  });
  return { pages, asked };
}

test('more comes under what is there, and loading begins anew', async () => {
  const { pages, asked } = list();
  await pages.load();
  expect(pages.data).toEqual({ items: [0, 1], next: '2' });
  await pages.more();
  expect(pages.data).toEqual({ items: [0, 1, 2, 3], next: null });
  await pages.load();
  expect(pages.data).toEqual({ items: [0, 1], next: '2' });
  expect(asked).toEqual([null, '2', null]);
});

test('a refresh never takes away what was asked for', async () => {
  const { pages, asked } = list();
  pages.refresh();
  expect(asked).toEqual([]);
  await pages.load();
  pages.refresh();
  expect(asked).toEqual([null, null]);
  await pages.more();
  pages.refresh();
  expect(asked).toEqual([null, null, '2']);
});
