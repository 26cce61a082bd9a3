/** What every test gets: a server, pages that are watched for faults, and an administrator who is signed in. */
import { test as base, expect, type Browser, type BrowserContext, type Page } from '@playwright/test';
import { ADMIN, PASSWORD, sessionCookie } from './prepared.ts';
import { Server, type ServerSettings } from './server.ts';

export { expect, PASSWORD };

interface Watch {
  /** Names a fault that this test brings about on purpose. */
  allow(fault: RegExp): void;
}

interface Fixtures {
  server: Server;
  watch: Watch;
  /** A page of the signed-in administrator, not yet anywhere. */
  admin: Page;
  /** Another browser, signed in as the same administrator. */
  other: Page;
}

interface Options {
  /** What the server of this test starts with. */
  start: ServerSettings;
  /** Whether the test shares its server with the others of its worker that only read. */
  isShared: boolean;
}

interface WorkerFixtures {
  /** Returns the server of this worker that is started with these settings. */
  sharedServer: (start: ServerSettings) => Promise<Server>;
}

export const test = base.extend<Fixtures & Options, WorkerFixtures>({
  start: [{}, { option: true }],
  isShared: [false, { option: true }],

  sharedServer: [
    async ({}, use) => {
      const servers = new Map<string, Server>();
      await use(async (start) => {
        const key = JSON.stringify(start);
        const server = servers.get(key) ?? new Server(start);
        if (!servers.has(key)) await server.start();
        servers.set(key, server);
        return server;
      });
      for (const server of servers.values()) await server.remove();
    },
    { scope: 'worker' },
  ],

  server: async ({ start, isShared, sharedServer }, use) => {
    if (isShared) {
      const server = await sharedServer(start);
      const before = await stateOf(server);
      await use(server);
      expect(await stateOf(server), 'the state of the shared server').toEqual(before);
      return;
    }
    const server = new Server(start);
    await server.start();
    await use(server);
    await server.remove();
  },

  watch: [
    async ({ browser, server }, use) => {
      const faults: string[] = [];
      const allowed: RegExp[] = [];
      const note = (fault: string) => faults.push(fault);
      const watchContext = (context: BrowserContext) => {
        context.on('console', (message) => {
          const isFault = message.type() === 'error' || message.type() === 'warning';
          if (isFault) note(`console: ${message.text()} ${message.location().url}`);
        });
        context.on('weberror', (error) => note(`uncaught: ${error.error().message}`));
        context.on('request', (request) => {
          const url = new URL(request.url());
          const ours = url.origin === server.dashboard || url.protocol === 'data:';
          if (!ours) note(`request to ${url.origin}`);
        });
      };
      const open = browser.newContext.bind(browser);
      browser.newContext = async (...args) => {
        const context = await open(...args);
        watchContext(context);
        return context;
      };
      for (const context of browser.contexts()) watchContext(context);
      await use({ allow: (fault) => allowed.push(fault) });
      browser.newContext = open;
      const unexpected = faults.filter((fault) => !allowed.some((pattern) => pattern.test(fault)));
      expect(unexpected, 'faults in the console, or requests to elsewhere').toEqual([]);
    },
    { auto: true },
  ],

  admin: async ({ browser, server, watch }, use) => {
    expect(watch).toBeDefined();
    const context = await adminContext(browser, server);
    await use(await context.newPage());
    await context.close();
  },

  other: async ({ browser, server, admin }, use) => {
    expect(admin).toBeDefined();
    const context = await browser.newContext({ baseURL: server.dashboard });
    await signInByCall(context);
    await use(await context.newPage());
    await context.close();
  },
});

/** Opens a browser of its own in which the first administrator is signed in. */
export async function adminContext(browser: Browser, server: Server): Promise<BrowserContext> {
  const context = await browser.newContext({ baseURL: server.dashboard });
  if (server.isPrepared) {
    await context.addCookies([await sessionCookie(server.dashboard)]);
  } else {
    const data = { code: server.setupCode, ...ADMIN };
    const answer = await context.request.post('/api/v1/setup', { data });
    expect(answer.status()).toBe(201);
  }
  return context;
}

export async function signInByCall(context: BrowserContext): Promise<void> {
  const answer = await context.request.post('/api/v1/session', { data: ADMIN });
  expect(answer.status()).toBe(200);
}

/** Returns what a test that only reads leaves as it is: the newest entry of the audit log, and the checks so far. */
async function stateOf(server: Server): Promise<{ audited: string; checked: number }> {
  const { name, value } = await sessionCookie(server.dashboard);
  const answer = await fetch(`${server.dashboard}/api/v1/audit?limit=1`, {
    headers: { cookie: `${name}=${value}` },
  });
  expect(answer.status, 'the prepared session still holds').toBe(200);
  return { audited: await answer.text(), checked: server.checked };
}

/** For tests that change nothing on the server and send it no checks: all of a worker share one server. */
export const readOnly = test.extend({ isShared: true });

/** For tests of the setup page: there is no administrator yet. */
export const fromNothing = test.extend({ start: { folder: 'empty' } });

/** For tests whose server has more arguments. */
export const withSettings = (...settings: string[]) => test.extend({ start: { settings } });

/** Keys are shown as they are, so that they can be looked up. */
export const clear = withSettings('--keys', 'clear');
