/** What the prepared data folder holds: see prepare.ts. */
import { cp, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Cookie } from '@playwright/test';

export const PASSWORD = 'correct horse battery staple';
export const ADMIN = { name: 'admin', password: PASSWORD };

/** The environment variable with the path of the prepared folder. */
export const PREPARED = 'TIDEGATE_E2E_PREPARED';
export const SESSION_FILE = 'session.json';

/** The cookie of the administrator's session. `PORT` in its name stands for the port of the dashboard. */
export interface Session {
  name: string;
  value: string;
}

function preparedPath(...parts: string[]): string {
  const folder = process.env[PREPARED];
  if (!folder)
    throw new Error('there is no prepared folder: playwright.config.ts names prepare.ts as globalSetup');
  return join(folder, ...parts);
}

/** Copies the prepared data into a folder that does not hold any. */
export async function copyPreparedData(folder: string): Promise<void> {
  await cp(preparedPath('data'), folder, { recursive: true });
}

/** Returns the cookie with which a browser is signed in at a server that started from the prepared data. */
export async function sessionCookie(dashboard: string): Promise<Cookie> {
  const { name, value } = JSON.parse(await readFile(preparedPath(SESSION_FILE), 'utf8')) as Session;
  const { hostname, port } = new URL(dashboard);
  return {
    name: name.replace('PORT', port),
    value,
    domain: hostname,
    path: '/',
    expires: -1,
    httpOnly: true,
    secure: false,
    sameSite: 'Strict',
  };
}
