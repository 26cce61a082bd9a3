/** Ports that no other test takes: the same lock as `testkit/src/port.rs` has, for tests of the dashboard. */
import { createServer, type Server } from 'node:net';

/**
 * Below the ports that the system gives to outgoing connections, so that a server that restarts finds its port free; and above
 * 10080, which browsers and `fetch` refuse as a bad port.
 */
const FIRST = 11_000;
const COUNT = 9_000;
/** The length of an abstract name. Versions of Node differ in whether they bind what is behind a shorter one. */
const NAME_BYTES = 107;

export interface ReservedPort {
  readonly port: number;
  release(): Promise<void>;
}

/** Reserves a port of loopback on which nothing listens, until it is released or this process ends. */
export async function reservePort(): Promise<ReservedPort> {
  const start = Math.floor(Math.random() * COUNT);
  for (let offset = 0; offset < COUNT; offset += 1) {
    const port = FIRST + ((start + offset) % COUNT);
    // An abstract Unix socket is the lock: the system releases it with the process.
    const lock = await listen({ path: `\0${`tidegate-test-port-${port}`.padEnd(NAME_BYTES, '\0')}` });
    if (!lock) continue;
    const probe = await listen({ host: '0.0.0.0', port });
    if (probe) {
      await close(probe);
      return { port, release: () => close(lock) };
    }
    await close(lock);
  }
  throw new Error(`no port of ${FIRST} to ${FIRST + COUNT - 1} is free`);
}

function listen(at: { path: string } | { host: string; port: number }): Promise<Server | null> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(null));
    server.listen(at, () => resolve(server));
  });
}

function close(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()));
}
