/** Who is signed in: another user in another tab, and signing out when it does not go smoothly. */
// @vitest-environment happy-dom
import { flushSync } from 'svelte';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { connectSession } from '../app/connect.ts';
import { startInitialCalls } from '../app/lib/api/initial.ts';
import { request } from '../app/lib/api/request.ts';
import type { Session } from '../app/lib/api/types.ts';
import { clock } from '../app/lib/state/clock.svelte.ts';
import { live } from '../app/lib/state/live/live.svelte.ts';
import { session } from '../app/lib/state/session.svelte.ts';
import { outage } from '../app/shell/outage.svelte.ts';

/** Tabs of one browser: each hears the others, and not itself. */
const tabs = vi.hoisted(() => {
  const open = new Set<Tab>();
  class Tab extends EventTarget {
    onmessage: (() => void) | null = null;
    constructor() {
      super();
      open.add(this);
    }
    postMessage(): void {
      for (const tab of open) if (tab !== this) tab.onmessage?.();
    }
  }
  globalThis.BroadcastChannel = Tab as unknown as typeof BroadcastChannel;
  return Tab;
});

let answers: Response[];
let calls: string[];
let source: EventTarget;

class QuietSource extends EventTarget {
  constructor() {
    super();
    // The test speaks for the newest one.
    // eslint-disable-next-line @typescript-eslint/no-this-alias
    source = this;
  }
  close(): void {
    this.dispatchEvent(new Event('closed'));
  }
}

const as = (name: string): Session => ({
  name,
  role: 'admin',
  csrf: `of ${name}`,
  expires_at: '2026-11-22T00:00:00Z',
  environment: null,
  production: false,
});
const json = (status: number, body: unknown) => new Response(JSON.stringify(body), { status });
const refusal = (status: number, code: string) => json(status, { code, status, title: code });
const soon = () => new Promise((resolve) => setTimeout(resolve));

connectSession();

beforeEach(async () => {
  [answers, calls] = [[json(200, {})], []];
  vi.stubGlobal('EventSource', QuietSource);
  vi.stubGlobal('fetch', (url: string, init: RequestInit) => {
    const headers = init.headers as Record<string, string>;
    calls.push(`${init.method} ${url.replace('/api/v1', '')} ${headers['x-csrf-token'] ?? ''}`.trim());
    const answer = answers.shift();
    return answer ? Promise.resolve(answer) : Promise.reject(new TypeError());
  });
  await session.enter(as('ana'));
  [answers, calls] = [[], []];
});
afterEach(() => {
  live.stop();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("what one user sent is never sent again in another's name", async () => {
  answers = [refusal(403, 'csrf'), json(200, as('ben'))];
  const sent = request('/policy/changes', { method: 'POST', body: {} });
  await soon();
  expect(session.state).toBe('lost');
  expect(session.user?.name).toBe('ana');
  expect(calls).toEqual(['POST /policy/changes of ana', 'GET /session']);
  answers = [json(200, { done: true })];
  await session.enter({ ...as('ana'), csrf: 'again' });
  expect(await sent).toEqual({ done: true });
  expect(calls).toContain('POST /policy/changes again');
});

test('a session that is lost is taken up when the same person signs in in another tab', async () => {
  const tab = new tabs();
  tab.postMessage();
  expect(calls).toEqual([]);
  session.noticeLoss();
  answers = [refusal(401, 'unauthorized')];
  tab.postMessage();
  await soon();
  expect([session.state, session.other]).toEqual(['lost', null]);
  answers = [json(200, as('ben'))];
  tab.postMessage();
  await soon();
  expect([session.state, session.other, session.user?.name]).toEqual(['lost', 'ben', 'ana']);
  const told = vi.fn();
  tab.onmessage = told;
  answers = [json(200, { ...as('ana'), csrf: 'new' })];
  tab.postMessage();
  await soon();
  expect([session.state, session.other, session.user?.csrf]).toEqual(['in', null, 'new']);
  expect(told).toHaveBeenCalledOnce();
});

test('a token that is merely old is renewed', async () => {
  answers = [refusal(403, 'csrf'), json(200, { ...as('ana'), csrf: 'new' }), json(200, {})];
  await request('/policy/changes', { method: 'POST', body: {} });
  expect(calls.at(-1)).toBe('POST /policy/changes new');
});

test("a call that waits, or is refused, when somebody signs out is never sent in the next one's name", async () => {
  let late: (answer: Response) => void = () => undefined;
  answers = [refusal(401, 'unauthorized')];
  const waiting = request('/policy/changes', { method: 'POST', body: {} });
  const given = expect(waiting).rejects.toThrow('unreachable');
  await soon();
  expect(session.state).toBe('lost');
  vi.stubGlobal('fetch', () => new Promise<Response>((resolve) => (late = resolve)));
  const onItsWay = request('/clients/bulk', { method: 'POST', body: {} });
  const refused = expect(onItsWay).rejects.toThrow('unreachable');
  const answerLate = late;
  vi.stubGlobal('fetch', (url: string) => {
    calls.push(url);
    return Promise.resolve(answers.shift() ?? json(200, {}));
  });
  answers = [new Response(null, { status: 204 })];
  await session.signOut();
  await given;
  answerLate(refusal(401, 'unauthorized'));
  await refused;
  calls = [];
  await session.enter(as('ben'));
  await soon();
  expect(calls).toEqual([]);
});

test('signing out of a session that is over is done', async () => {
  answers = [refusal(401, 'unauthorized')];
  await session.signOut();
  expect(session.state).toBe('out');
});

test('signing out that fails says so, and leaves the session as it is', async () => {
  await expect(session.signOut()).rejects.toThrow('unreachable');
  expect(session.state).toBe('in');
  answers = [
    refusal(403, 'csrf'),
    json(200, { ...as('ana'), csrf: 'new' }),
    new Response(null, { status: 204 }),
  ];
  await session.signOut();
  expect(session.state).toBe('out');
});

test('what a load needs to know is asked ahead, once', async () => {
  answers = [json(200, as('ana')), json(200, {}), refusal(401, 'unauthorized'), refusal(401, 'unauthorized')];
  startInitialCalls();
  expect(calls).toEqual(['GET /session', 'GET /meta']);
  await session.start();
  expect([session.state, calls.length]).toEqual(['in', 2]);
  await session.start();
  expect([session.state, calls.length]).toEqual(['out', 4]);
});

test('coming back to a tab that was hidden for long is no outage', () => {
  vi.useFakeTimers();
  const see = (hidden: boolean) => {
    Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
    flushSync();
  };
  live.start('ana');
  source.dispatchEvent(new MessageEvent('bye', { data: '{}' }));
  live.start('ana');
  see(true);
  vi.advanceTimersByTime(60_000);
  expect(live.connection).toBe('paused');
  clock.second = Date.now();
  see(false);
  expect(live.connection).toBe('connecting');
  expect(outage.long).toBe(false);
  clock.second = Date.now() + 4_000;
  expect(outage.long).toBe(true);
});
