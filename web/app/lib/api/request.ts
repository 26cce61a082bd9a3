/** The one door to the server: JSON in and out, problem details, the CSRF header, and what a 401 means. */
import type { Problem } from './types.ts';

/** The server answered, and the answer is no. */
export class RefusedError extends Error {
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.detail ?? problem.title);
    this.problem = problem;
  }
}

/** No answer came. */
export class UnreachableError extends Error {
  constructor() {
    super('unreachable');
  }
}

export interface Call {
  method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Sent as JSON, but a file as it is. */
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Sign-in itself: a 401 is its answer, not the end of a session. */
  open?: boolean;
  /** Signing out: a 401 is its answer too. */
  last?: boolean;
}

interface Guard {
  csrf(): string | null;
  /** Ends when someone has signed in again. */
  signedOut(): Promise<void>;
  /** Reads the session anew, for its CSRF token. When it is gone or another's, ends when someone has signed in again. */
  refresh(): Promise<void>;
}

let guard: Guard = {
  csrf: () => null,
  signedOut: () => Promise.resolve(),
  refresh: () => Promise.resolve(),
};

/** Told once, by the session, which knows what the calls need. */
export function guardCalls(by: Guard): void {
  guard = by;
}

/** Calls `/api/v1` + path. A call that a lost session refused is made again after signing in. */
export async function request<Answer>(path: string, call: Call = {}): Promise<Answer> {
  const answer = await send(path, call);
  if (answer.ok) return read<Answer>(answer);
  const problem = await problemOf(answer);
  if (!call.open && !call.last && problem.status === 401) {
    await guard.signedOut();
    return request(path, call);
  }
  if (!call.open && problem.code === 'csrf') {
    await guard.refresh();
    return read<Answer>(await send(path, call));
  }
  throw new RefusedError(problem);
}

async function read<Answer>(answer: Response): Promise<Answer> {
  if (!answer.ok) throw new RefusedError(await problemOf(answer));
  if (answer.status === 204) return undefined as Answer;
  try {
    return (await answer.json()) as Answer;
  } catch {
    // Cut off on its way: as good as none.
    throw new UnreachableError();
  }
}

async function send(path: string, call: Call): Promise<Response> {
  const method = call.method ?? 'GET';
  const headers: Record<string, string> = { accept: 'application/json', ...call.headers };
  const init: RequestInit = { method, headers, credentials: 'same-origin', cache: 'no-store' };
  if (call.signal) init.signal = call.signal;
  if (call.body instanceof Blob) {
    init.body = call.body;
  } else if (call.body !== undefined) {
    headers['content-type'] = 'application/json';
    init.body = JSON.stringify(call.body);
  }
  const csrf = guard.csrf();
  if (method !== 'GET' && csrf !== null) headers['x-csrf-token'] = csrf;
  try {
    return await fetch(`/api/v1${path}`, init);
  } catch (error) {
    if (call.signal?.aborted) throw error;
    throw new UnreachableError();
  }
}

async function problemOf(answer: Response): Promise<Problem> {
  const requestId = answer.headers.get('x-request-id');
  const problem: Problem = {
    code: 'internal',
    title: `${answer.status} ${answer.statusText}`.trim(),
    status: answer.status,
  };
  if (requestId !== null) problem.request_id = requestId;
  const wait = Number(answer.headers.get('retry-after') ?? 'none');
  if (Number.isFinite(wait)) problem.retry_after_s = wait;
  try {
    const body: unknown = await answer.json();
    if (typeof body === 'object' && body !== null) return { ...problem, ...body };
  } catch {
    // A proxy's page, or nothing: the status line has to do.
  }
  return problem;
}
