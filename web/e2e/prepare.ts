/**
 * Makes the data folder that the servers of most tests start from, once for each run: in it the first administrator
 * exists and is signed in, so that no test repeats the setup page and its password hash.
 */
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ADMIN, PREPARED, SESSION_FILE, type Session } from './prepared.ts';
import { Server } from './server.ts';

/** Playwright calls this before the first test, and what it returns after the last one. */
export default async function prepare(): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), 'tidegate-e2e-prepared-'));
  const remove = () => rm(folder, { recursive: true, force: true });
  const server = new Server({ folder: 'empty' });
  try {
    await server.start();
    const session = await setUp(server);
    await server.stop();
    await cp(server.folder, join(folder, 'data'), { recursive: true });
    await writeFile(join(folder, SESSION_FILE), JSON.stringify(session));
  } catch (error) {
    await remove();
    throw error;
  } finally {
    await server.remove();
  }
  process.env[PREPARED] = folder;
  return remove;
}

async function setUp(server: Server): Promise<Session> {
  const answer = await fetch(`${server.dashboard}/api/v1/setup`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ code: server.setupCode, ...ADMIN }),
  });
  if (answer.status !== 201) throw new Error(`setup: ${answer.status} ${await answer.text()}`);
  const [cookie = ''] = answer.headers.getSetCookie();
  const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
  return { name: name.replace(new URL(server.dashboard).port, 'PORT'), value };
}
