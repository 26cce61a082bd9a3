/** The version that is in force, as the stream tells it: also where it was lost for a while. */
// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { fleet } from '../app/lib/state/fleet/fleet.svelte.ts';
import { live } from '../app/lib/state/live/live.svelte.ts';

let source: EventTarget;

class QuietSource extends EventTarget {
  constructor() {
    super();
    // The test speaks for the newest one.
    // eslint-disable-next-line @typescript-eslint/no-this-alias
    source = this;
  }
  close(): void {
    this.dispatchEvent(new Event('closed'));
  }
}

const tell = (name: string, data: unknown) =>
  source.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) }));
const hello = (policy_version: number, resumed: boolean) =>
  tell('hello', { server_time_ms: Date.now(), build: 'one', policy_version, resumed, rollout: null });
const at = (version: number) => `2026-11-22T00:00:0${version}Z`;
const publish = (version: number) => tell('policy.published', { version, published_at: at(version) });
const apply = (version: number) => tell('policy.applied', { version, node: 'a', took_ms: version });

let answerLate: () => void;
beforeEach(() => {
  vi.stubGlobal('EventSource', QuietSource);
  vi.stubGlobal('fetch', (url: string) => {
    if (!url.includes('/policy/versions')) return Promise.resolve(new Response('{"history":[]}'));
    return new Promise((resolve) => {
      answerLate = () => {
        resolve(new Response(JSON.stringify({ items: [{ version: 7, published_at: at(7) }] })));
      };
    });
  });
  live.start('ana');
});
afterEach(() => {
  live.stop();
  vi.unstubAllGlobals();
});

test('publishes that were missed are told again, and the version never goes back', async () => {
  hello(5, false);
  const versions: (number | null)[] = [];
  const told = vi.fn();
  const leave = live.onPublished(told);
  live.start('ana');
  hello(7, true);
  for (const version of [6, 7]) {
    publish(version);
    versions.push(live.policyVersion);
    apply(version);
    expect(fleet.publishedAt).toBe(version === 7 ? Date.parse(at(7)) : null);
  }
  expect(versions).toEqual([7, 7]);
  expect(told).toHaveBeenCalledTimes(3);
  // What was asked for before they were told changes nothing any more.
  answerLate();
  await new Promise((resolve) => setTimeout(resolve));
  expect(fleet.applied['a']?.version).toBe(7);
  leave();
});

test('a server that knows less is believed', () => {
  hello(2, false);
  expect(live.policyVersion).toBe(2);
  publish(3);
  expect(live.policyVersion).toBe(3);
});
