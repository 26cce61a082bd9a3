/** Who is signed in, and what happens when the session ends under an open page. */
import { untrack } from 'svelte';
import { getMeta, getSession, signIn, signOut } from '../api/calls.ts';
import { takeInitialCalls } from '../api/initial.ts';
import { guardCalls, RefusedError, UnreachableError } from '../api/request.ts';
import type { Role } from '../api/schema.ts';
import type { Meta, Session } from '../api/types.ts';

/** From the least to the most; each may what those before it may. */
export const ROLES: Role[] = ['viewer', 'operator', 'editor', 'admin'];

/** Parts of the dashboard that begin and end with a session. */
export interface SessionParts {
  /** Called before the pages of the user are shown, and again when they are back after a lost session. */
  enter(session: Session): void;
  leave(dropChanges: boolean): void;
}

export type SessionState = 'unknown' | 'in' | 'out' | 'lost' | 'unreachable';

class SessionKeeper {
  state = $state<SessionState>('unknown');
  user = $state.raw<Session | null>(null);
  meta = $state.raw<Meta | null>(null);
  /** Who is signed in in this browser instead, when the session is lost. */
  other = $state<string | null>(null);
  #parts: SessionParts | null = null;
  #waiting: { resolve: () => void; reject: (why: Error) => void }[] = [];
  /** Tabs of this browser tell each other that somebody is signed in, and no more: each asks the server who. */
  #tabs = new BroadcastChannel('tidegate.session');

  constructor() {
    guardCalls({
      // Whoever makes a call while it renders does not depend on the token.
      csrf: () => untrack(() => this.user?.csrf ?? null),
      signedOut: () => this.#lose(),
      refresh: () => this.#refresh(),
    });
    this.#tabs.onmessage = () => void this.#regain();
  }

  /** Sets what begins and ends with each session. */
  attach(parts: SessionParts): void {
    this.#parts = parts;
  }

  /** Looks whether the browser still has a session. */
  async start(): Promise<void> {
    const { who, meta } = takeInitialCalls();
    try {
      await this.enter(await who, meta);
    } catch (error) {
      this.state = isSignedOut(error) ? 'out' : 'unreachable';
    }
  }

  async signIn(name: string, password: string, code?: string): Promise<void> {
    await this.enter(await signIn(name, password, code));
  }

  async enter(who: Session, meta?: Promise<Meta>): Promise<void> {
    this.user = who;
    this.other = null;
    this.meta ??= await (meta ?? getMeta());
    this.#parts?.enter(who);
    this.state = 'in';
    for (const { resolve } of this.#waiting.splice(0)) resolve();
    this.#tabs.postMessage(null);
  }

  async signOut(dropChanges = false): Promise<void> {
    try {
      await signOut();
    } catch (error) {
      // A session that is over already is what was asked for.
      if (!isSignedOut(error)) throw error;
    }
    this.#parts?.leave(dropChanges);
    this.user = null;
    this.state = 'out';
    for (const { reject } of this.#waiting.splice(0)) reject(new UnreachableError());
  }

  /** Has the person this role, or one above it? */
  may(role: Role): boolean {
    return ROLES.findIndex((one) => one === this.user?.role) >= ROLES.indexOf(role);
  }

  algorithmLabel(id: string): string {
    return this.meta?.algorithms.find((algorithm) => algorithm.id === id)?.label ?? id;
  }

  /** The stream found out first. */
  noticeLoss(): void {
    if (this.state === 'in') this.state = 'lost';
  }

  /** Somebody else may have signed in in another tab: nothing of this one is ever sent in their name. */
  async #refresh(): Promise<void> {
    try {
      const now = await getSession();
      if (now.name !== this.user?.name) {
        this.other = now.name;
        return await this.#lose();
      }
      this.user = now;
    } catch (error) {
      if (!isSignedOut(error)) throw error;
      await this.#lose();
    }
  }

  /** Somebody is signed in in another tab: the same person goes on here, and nobody else. */
  async #regain(): Promise<void> {
    if (this.state !== 'lost') return;
    try {
      const now = await getSession();
      if (now.name === this.user?.name) await this.enter(now);
      else this.other = now.name;
    } catch {
      // The dialog stays open.
    }
  }

  /** Calls wait until the same person is back; after a sign-out nobody's call is ever sent again. */
  #lose(): Promise<void> {
    this.noticeLoss();
    if (this.state !== 'lost') return Promise.reject(new UnreachableError());
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }
}

function isSignedOut(error: unknown): boolean {
  return error instanceof RefusedError && error.problem.status === 401;
}

export const session = new SessionKeeper();
