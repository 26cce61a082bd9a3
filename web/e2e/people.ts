/** Calls in the name of somebody, beside the page: users of each role, and what they do. */
import type { APIRequestContext, Browser, BrowserContext, Page } from '@playwright/test';
import { expect, PASSWORD } from './fixtures.ts';
import type { Server } from './server.ts';

export type Role = 'viewer' | 'operator' | 'editor' | 'admin';

/** A call that changes something, with the token that it needs. */
export async function call<Answer = unknown>(
  of: Page,
  method: 'POST' | 'PUT' | 'PATCH' | 'DELETE',
  path: string,
  data?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const { request } = of.context();
  const answer = await request.fetch(`/api/v1${path}`, {
    method,
    ...(data === undefined ? {} : { data }),
    headers: { 'x-csrf-token': await csrf(request), ...headers },
  });
  expect(answer.ok(), `${method} ${path}: ${await answer.text()}`).toBe(true);
  return (answer.status() === 204 ? undefined : await answer.json()) as Answer;
}

async function csrf(request: APIRequestContext): Promise<string> {
  return ((await (await request.get('/api/v1/session')).json()) as { csrf: string }).csrf;
}

export async function addUser(admin: Page, name: string, role: Role): Promise<void> {
  await call(admin, 'POST', '/users', { name, role, password: PASSWORD });
}

/** A browser of its own in which this user is signed in. */
export async function signedIn(browser: Browser, server: Server, name: string): Promise<BrowserContext> {
  const context = await browser.newContext({ baseURL: server.dashboard });
  const answer = await context.request.post('/api/v1/session', { data: { name, password: PASSWORD } });
  expect(answer.status()).toBe(200);
  return context;
}

/** Publishes a change of the tier `pro` and of nothing else. Answers the version. */
export async function publishPro(admin: Page, limit: number, message: string): Promise<number> {
  const tier = (await (await admin.context().request.get('/api/v1/tiers/pro')).json()) as {
    etag: string;
    value: { id: string; limits: { limit: number }[] };
  };
  const { value, etag } = tier;
  if (value.limits[0]) value.limits[0].limit = limit;
  const list = {
    base_version: 1,
    message,
    changes: [{ op: 'put', kind: 'tier', domain: 'default', id: 'pro', value }],
    if_match: { 'tier:pro': etag },
  };
  return (await call<{ version: number }>(admin, 'POST', '/policy/changes', list)).version;
}
