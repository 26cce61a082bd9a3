/** Nodes that follow the server of a test: the real process, and one that is made up to refuse what it is sent. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { APIRequestContext } from '@playwright/test';

/** A real store on loopback that keeps nothing on disk. */
export class Redis {
  private process: ChildProcess | null = null;
  url = '';

  async start(): Promise<void> {
    const port = await freePort();
    this.url = `redis://127.0.0.1:${port}`;
    const settings = ['--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--daemonize', 'no'];
    this.process = spawn('redis-server', ['--port', String(port), ...settings], { stdio: 'ignore' });
  }

  stop(): void {
    this.process?.kill('SIGKILL');
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address ? address.port : 0));
    });
  });
}

/** The secret of a new token of the scope `node`. */
export async function nodeToken(request: APIRequestContext, name = 'fleet'): Promise<string> {
  const { csrf } = (await (await request.get('/api/v1/session')).json()) as { csrf: string };
  const answer = await request.post('/api/v1/tokens', {
    data: { name, scope: 'node' },
    headers: { 'x-csrf-token': csrf },
  });
  return ((await answer.json()) as { secret: string }).secret;
}

export class FleetNode {
  readonly name: string;
  /** Where it answers checks. */
  checks = '';
  readonly #admin: string;
  readonly #token: string;
  readonly #more: Record<string, string>;
  #folder = '';
  #process: ChildProcess | null = null;

  /** `more`: settings of its own. */
  constructor(admin: string, token: string, name: string, more: Record<string, string> = {}) {
    this.#admin = admin;
    this.#token = token;
    this.name = name;
    this.#more = more;
  }

  async start(): Promise<void> {
    const binary = process.env['TIDEGATE_BIN'];
    if (!binary) throw new Error('TIDEGATE_BIN must be the path of the tidegate binary');
    this.#folder ||= await mkdtemp(join(tmpdir(), 'tidegate-e2e-node-'));
    const secret = join(this.#folder, 'token');
    await writeFile(secret, this.#token);
    const settings: Record<string, string> = {
      admin: this.#admin,
      'token-file': secret,
      name: this.name,
      data: join(this.#folder, 'data'),
      http: '127.0.0.1:0',
      grpc: '127.0.0.1:0',
      'drain-delay': '0s',
      ...this.#more,
    };
    const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
    const child = spawn(binary, ['node', ...args], { stdio: ['ignore', 'pipe', 'ignore'] });
    this.#process = child;
    child.stdout.on('data', (bytes: Buffer) => {
      this.checks = /^checks +(http\S+)$/m.exec(bytes.toString())?.[1] ?? this.checks;
    });
  }

  /** Stops the process where it is: it is there, and answers no call. */
  freeze(): void {
    this.#process?.kill('SIGSTOP');
  }

  async kill(): Promise<void> {
    const child = this.#process;
    this.#process = null;
    if (!child || child.exitCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
  }

  async remove(): Promise<void> {
    await this.kill();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** One of another build: it reads no policy after the first, and says why. */
export class RefusingNode {
  readonly #stop = new AbortController();

  constructor(
    private readonly admin: string,
    private readonly token: string,
    private readonly name: string,
    private readonly why: string,
  ) {}

  async start(): Promise<void> {
    const hello = new URLSearchParams({ name: this.name, instance: 'one', build: '0.0.9', schema: '1' });
    const answer = await fetch(`${this.admin}/api/v1/snapshots/stream?${hello.toString()}`, {
      headers: { authorization: `Bearer ${this.token}` },
      signal: this.#stop.signal,
    });
    if (!answer.body) throw new Error(`no stream: ${answer.status}`);
    void this.#read(answer.body).catch(() => undefined);
  }

  stop(): void {
    this.#stop.abort();
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    let [said, sequence, has] = ['', 0, 0];
    const reports = setInterval(() => {
      sequence += 1;
      void this.#post('reports', { sequence, policy_version: has });
    }, 500);
    try {
      for await (const bytes of body) {
        const events = (said + Buffer.from(bytes).toString()).split('\n\n');
        said = events.pop() ?? '';
        for (const event of events) {
          const version = Number(/^event: snapshot$[\s\S]*"version":(\d+)/m.exec(event)?.[1] ?? 0);
          if (version === 0) continue;
          const refused = has === 0 ? null : this.why;
          has ||= version;
          await this.#post('acknowledgements', { version, took_ms: 3, refused });
        }
      }
    } finally {
      clearInterval(reports);
    }
  }

  async #post(what: string, data: object): Promise<void> {
    await fetch(`${this.admin}/api/v1/nodes/${what}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${this.token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ name: this.name, instance: 'one', at_ms: Date.now(), ...data }),
      signal: this.#stop.signal,
    }).catch(() => undefined);
  }
}
