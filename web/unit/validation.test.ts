/** What the server thinks of a list before it is published, and what is meant of it. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Validation } from '../app/features/publish/validation.svelte.ts';
import type { ChangeList } from '../app/lib/api/types.ts';

let answers: Response[];

beforeEach(() => {
  answers = [];
  vi.stubGlobal('fetch', () => Promise.resolve(answers.shift()));
});
afterEach(() => {
  vi.unstubAllGlobals();
});

const list: ChangeList = { base_version: 1, message: 'tried', changes: [] };
const loosened = { code: 'off', domain: 'default', kind: 'rule', id: 'login', limit: null, objects: 1 };
const refusing = { ...loosened, message: 'starts to refuse: was off', since: null };
const found = (...messages: string[]) =>
  new Response(
    JSON.stringify({
      version: 2,
      on_top_of: 1,
      differences: [],
      warnings: [],
      loosens: messages.map((message) => ({ ...loosened, message })),
      starts_to_refuse: [refusing],
    }),
  );
const refused = (status: number) =>
  new Response(JSON.stringify({ code: 'x', title: 'X', status }), { status });

test('what is meant is what was said, and nothing that comes later', async () => {
  const tried = new Validation();
  answers = [found('off'), found('off', 'gone'), found('off'), found()];
  await tried.ask(list);
  expect(tried.effects.asks).toBe(true);
  tried.effects.meant = true;
  expect(tried.effects.asks).toBe(false);
  await tried.ask(list);
  expect(tried.effects.asks).toBe(true);
  await tried.ask(list);
  expect(tried.effects.asks).toBe(false);
  await tried.ask(list);
  expect(tried.effects.asks).toBe(false);
  // What starts to refuse is told, and not asked about.
  expect(tried.effects.refuses).toEqual([refusing]);
});

test('a refusal is told, a conflict is left to publishing, and a busy server says nothing', async () => {
  const tried = new Validation();
  answers = [found('off'), refused(412), refused(422), refused(503)];
  await tried.ask(list);
  await tried.ask(list);
  expect([tried.refused, tried.effects.loosens.length]).toEqual([null, 1]);
  await tried.ask(list);
  expect(tried.refused?.status).toBe(422);
  expect([tried.effects.loosens, tried.effects.refuses]).toEqual([[], []]);
  await tried.ask(list);
  expect(tried.refused).toBeNull();
});

test('an answer to a list of before is dropped', async () => {
  const tried = new Validation();
  const call = new AbortController();
  answers = [found('off')];
  const asked = tried.ask(list, call.signal);
  call.abort();
  await asked;
  expect(tried.effects.loosens).toEqual([]);
});
