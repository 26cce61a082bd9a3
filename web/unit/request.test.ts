/** The door to the server: problems, CSRF, lost sessions, no answer. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { guardCalls, RefusedError, request, UnreachableError } from '../app/lib/api/request.ts';

let answers: (Response | Error)[];
let calls: { url: string; init: RequestInit }[];
let csrf: string | null;
let signedOut: number;

function json(status: number, body: unknown, headers: Record<string, string> = {}): Response {
  return new Response(JSON.stringify(body), { status, headers });
}

beforeEach(() => {
  [answers, calls, csrf, signedOut] = [[], [], 'token', 0];
  guardCalls({
    csrf: () => csrf,
    signedOut: () => {
      signedOut += 1;
      return Promise.resolve();
    },
    refresh: () => {
      csrf = 'fresh';
      return Promise.resolve();
    },
  });
  vi.stubGlobal('fetch', (url: string, init: RequestInit) => {
    calls.push({ url, init });
    const answer = answers.shift();
    return answer instanceof Response ? Promise.resolve(answer) : Promise.reject(answer ?? new TypeError());
  });
});
afterEach(() => vi.unstubAllGlobals());

const sent = (at: number) => calls[at]?.init.headers as Record<string, string>;

test('reads carry no CSRF token, writes do', async () => {
  answers = [json(200, { a: 1 }), new Response(null, { status: 204 })];
  expect(await request('/x')).toEqual({ a: 1 });
  expect(await request('/x', { method: 'POST', body: {} })).toBeUndefined();
  expect(calls[0]?.url).toBe('/api/v1/x');
  expect(sent(0)).not.toHaveProperty('x-csrf-token');
  expect(sent(1)).toMatchObject({ 'x-csrf-token': 'token', 'content-type': 'application/json' });
});

test('a refusal carries the problem, also when it is not JSON', async () => {
  answers = [
    json(422, { code: 'invalid', title: 'Invalid', status: 422, detail: 'burst' }),
    new Response('<html>', { status: 502, statusText: 'Bad Gateway', headers: { 'x-request-id': 'r1' } }),
  ];
  await expect(request('/x')).rejects.toMatchObject({ message: 'burst', problem: { code: 'invalid' } });
  const error = await request('/x').catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(RefusedError);
  expect(error).toMatchObject({ problem: { status: 502, title: '502 Bad Gateway', request_id: 'r1' } });
});

test('a lost session is waited for, then the call is made again', async () => {
  answers = [json(401, { code: 'unauthorized', status: 401, title: '' }), json(200, { a: 2 })];
  expect(await request('/x')).toEqual({ a: 2 });
  expect(signedOut).toBe(1);
});

test('at sign-in a 401 is the answer', async () => {
  answers = [json(401, { code: 'wrong_credentials', status: 401, title: 'No' })];
  await expect(request('/session', { method: 'POST', body: {}, open: true })).rejects.toBeInstanceOf(
    RefusedError,
  );
  expect(signedOut).toBe(0);
});

test('a stale CSRF token is replaced once', async () => {
  answers = [json(403, { code: 'csrf', status: 403, title: '' }), json(200, {})];
  await request('/x', { method: 'POST', body: {} });
  expect(sent(1)).toMatchObject({ 'x-csrf-token': 'fresh' });
  answers = [
    json(403, { code: 'csrf', status: 403, title: '' }),
    json(403, { code: 'csrf', status: 403, title: '' }),
  ];
  await expect(request('/x', { method: 'POST', body: {} })).rejects.toBeInstanceOf(RefusedError);
});

test('no answer is not a refusal', async () => {
  answers = [new TypeError('failed to fetch')];
  await expect(request('/x')).rejects.toBeInstanceOf(UnreachableError);
});
