/** The real binary with a data folder of its own: started, asked, killed, and started again on the same ports. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { reservePort, type ReservedPort } from './ports.ts';
import { copyPreparedData } from './prepared.ts';

/** A generous limit: a start takes a fifth of a second on an idle machine. */
const START_MS = 60_000;

export interface Decision {
  allowed: boolean;
  remaining: number | null;
  reset_after_ms: number | null;
  limit_id: string | null;
}

export interface ServerSettings {
  /** More arguments of `tidegate serve`. */
  settings?: string[];
  /** The data that it starts from: with an administrator, or none at all. `prepared` if absent. */
  folder?: 'prepared' | 'empty';
}

export class Server {
  dashboard = '';
  checks = '';
  /** The link for the first administrator; empty once there is one. */
  signInLink = '';
  /** Whether the administrator exists and is signed in. */
  readonly isPrepared: boolean;
  /** How many checks were sent by `check`. */
  checked = 0;
  readonly #settings: string[];
  /** Of the dashboard and of checks: the same when it starts again. */
  #ports: ReservedPort[] = [];
  #folder = '';
  #process: ChildProcess | null = null;

  constructor({ settings = [], folder = 'prepared' }: ServerSettings = {}) {
    this.#settings = settings;
    this.isPrepared = folder === 'prepared';
  }

  /** The data folder, once the server was started. */
  get folder(): string {
    return this.#folder;
  }

  /** The code in the link for the first administrator. */
  get setupCode(): string {
    return new URL(this.signInLink).hash.replace('#code=', '');
  }

  async start(): Promise<void> {
    const binary = process.env['TIDEGATE_BIN'];
    if (!binary) throw new Error('TIDEGATE_BIN must be the path of the tidegate binary');
    if (this.#folder === '') {
      this.#folder = await mkdtemp(join(tmpdir(), 'tidegate-e2e-'));
      if (this.isPrepared) await copyPreparedData(this.#folder);
    }
    if (this.#ports.length === 0) this.#ports = [await reservePort(), await reservePort()];
    const [admin, http] = this.#ports.map(({ port }) => `127.0.0.1:${port}`);
    const args = [
      'serve',
      '--data',
      this.#folder,
      '--admin',
      admin ?? '',
      '--http',
      http ?? '',
      '--grpc',
      '127.0.0.1:0',
      // No load balancer has to notice that it ends.
      '--drain-delay',
      '0s',
      ...this.#settings,
    ];
    const child = spawn(binary, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    this.#process = child;
    await this.#read(child);
  }

  /** Ends it at once, as a crash would. */
  async kill(): Promise<void> {
    const child = this.#process;
    this.#process = null;
    if (!child || child.exitCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
  }

  /** Ends it as an operator does: what was counted is kept. */
  async stop(): Promise<void> {
    const child = this.#process;
    this.#process = null;
    if (!child || child.exitCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGTERM');
    await ended;
  }

  /** Stops the process where it is: it is there, and answers no call. */
  freeze(): void {
    this.#process?.kill('SIGSTOP');
  }

  thaw(): void {
    this.#process?.kill('SIGCONT');
  }

  async remove(): Promise<void> {
    await this.kill();
    for (const port of this.#ports) await port.release();
    await rm(this.#folder, { recursive: true, force: true });
  }

  async check(user: string, path = '/x'): Promise<{ status: number; decision: Decision }> {
    this.checked += 1;
    const answer = await fetch(`${this.checks}/v1/check`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ identities: [{ kind: 'user', value: user }], endpoint: path }),
    });
    return { status: answer.status, decision: (await answer.json()) as Decision };
  }

  /** Reads the addresses from what it prints, and waits until it is ready. */
  async #read(child: ChildProcess): Promise<void> {
    if (!child.stdout || !child.stderr) throw new Error('no output to read');
    let said = '';
    child.stderr.on('data', (bytes: Buffer) => (said = (said + bytes.toString()).slice(-2_000)));
    const lines = createInterface({ input: child.stdout });
    lines.on('line', (line) => {
      const [, name, url = ''] = /^(dashboard|checks|sign in) +(http\S+)$/.exec(line) ?? [];
      if (name === 'dashboard') this.dashboard = url;
      if (name === 'checks') this.checks = url;
      if (name === 'sign in') this.signInLink = url;
    });
    const until = Date.now() + START_MS;
    while (Date.now() < until) {
      if (child.exitCode !== null) throw new Error(`the server ended with ${child.exitCode}: ${said}`);
      if (this.dashboard !== '' && (await this.#isReady())) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error('the server did not become ready');
  }

  async #isReady(): Promise<boolean> {
    try {
      return (await fetch(`${this.dashboard}/readyz`)).ok;
    } catch {
      return false;
    }
  }
}
