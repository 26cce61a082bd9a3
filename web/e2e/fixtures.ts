/** What every test gets: a server, pages that are watched for faults, and an administrator who is signed in. */
import { test as base, expect, type BrowserContext, type Page } from '@playwright/test';
import { Server } from './server.ts';

export const PASSWORD = 'correct horse battery staple';

interface Watch {
  /** Faults that this test brings about on purpose. */
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

export const test = base.extend<Fixtures>({
  server: async ({}, use) => {
    const server = new Server();
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
          if (message.type() === 'error' || message.type() === 'warning') note(`console: ${message.text()}`);
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
    const context = await browser.newContext({ baseURL: server.dashboard });
    const code = new URL(server.signInLink).hash.replace('#code=', '');
    const answer = await context.request.post('/api/v1/setup', {
      data: { code, name: 'admin', password: PASSWORD },
    });
    expect(answer.status()).toBe(201);
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

export async function signInByCall(context: BrowserContext): Promise<void> {
  const answer = await context.request.post('/api/v1/session', {
    data: { name: 'admin', password: PASSWORD },
  });
  expect(answer.status()).toBe(200);
}

export { expect };

/** Keys are shown as they are, so that they can be looked up. */
export const clear = test.extend({
  server: async ({}, use) => {
    const server = new Server('--keys', 'clear');
    await server.start();
    await use(server);
    await server.remove();
  },
});
