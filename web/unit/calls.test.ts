/** Lists come in pages; the pages of the dashboard want them whole. */
import { afterEach, expect, test, vi } from 'vitest';
import { getTiers } from '../app/lib/api/calls.ts';

afterEach(() => vi.unstubAllGlobals());

test('a list is followed to its last page', async () => {
  const asked: string[] = [];
  const pages = [
    { items: ['a', 'b'], next: 'b/c' },
    { items: ['c'], next: null },
  ];
  vi.stubGlobal('fetch', (url: string) => {
    asked.push(url);
    return Promise.resolve(
      new Response(JSON.stringify({ policy_version: 3, domain: 'web', ...pages.shift() })),
    );
  });
  const list = await getTiers('web', new AbortController().signal);
  expect(list).toMatchObject({ policy_version: 3, items: ['a', 'b', 'c'], next: null });
  expect(asked).toEqual([
    '/api/v1/tiers?domain=web&limit=500',
    '/api/v1/tiers?domain=web&limit=500&cursor=b%2Fc',
  ]);
});
