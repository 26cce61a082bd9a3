/** The event stream: losses, silence, hiding, signing out. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Stream, type Connection } from '../app/lib/state/live/stream.ts';

class FakeSource extends EventTarget {
  closed = false;

  close(): void {
    this.closed = true;
  }
  say(name: string, data: unknown, lastEventId = ''): void {
    this.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data), lastEventId }));
  }
  fail(): void {
    this.dispatchEvent(new Event('error'));
  }
}

let sources: FakeSource[];
let opened: (string | null)[];
let seen: Connection[];
let events: [string, unknown][];
let answer: 'in' | 'out' | 'down';
/** Answers that are held back, when there is a list for them. */
let held: (() => void)[] | null;
let stream: Stream;

const latest = () => sources.at(-1) ?? new FakeSource();

beforeEach(() => {
  vi.useFakeTimers();
  [sources, opened, seen, events, answer, held] = [[], [], [], [], 'in', null];
  stream = new Stream({
    open: (last) => {
      opened.push(last);
      const source = new FakeSource();
      sources.push(source);
      return source as unknown as EventSource;
    },
    probe: () =>
      new Promise((resolve) => {
        if (held) held.push(() => resolve(answer));
        else resolve(answer);
      }),
    onEvent: (name, data) => events.push([name, data]),
    onConnection: (connection) => seen.push(connection),
  });
  stream.start();
});
afterEach(() => {
  stream.stop();
  vi.useRealTimers();
});

test('it is live from the first event on', () => {
  expect(seen).toEqual(['connecting']);
  latest().say('hello', { build: 'x' });
  expect(seen).toEqual(['connecting', 'live']);
  expect(events).toEqual([['hello', { build: 'x' }]]);
});

test('after an error it comes back by itself, sooner when the server answers', async () => {
  latest().say('hello', {});
  latest().fail();
  expect(sources[0]?.closed).toBe(true);
  await vi.advanceTimersByTimeAsync(500);
  expect(sources).toHaveLength(2);
  answer = 'down';
  latest().fail();
  await vi.advanceTimersByTimeAsync(1_999);
  expect(sources).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(1);
  expect(sources).toHaveLength(3);
  latest().say('metrics', {});
  expect(seen).toEqual(['connecting', 'live', 'reconnecting', 'live']);
});

test('after a loss it goes on where it was, and for other topics it begins anew', async () => {
  latest().say('hello', {}, 'a-7');
  latest().say('metrics', {});
  latest().fail();
  await vi.advanceTimersByTimeAsync(500);
  latest().say('hello', {}, 'a-9');
  stream.renew();
  latest().say('hello', {}, 'a-11');
  latest().fail();
  stream.renew();
  await vi.advanceTimersByTimeAsync(500);
  stream.start();
  expect(opened).toEqual([null, 'a-7', null, null, null]);
});

test('without a session it waits for someone to sign in', async () => {
  answer = 'out';
  latest().fail();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(seen).toEqual(['connecting', 'reconnecting', 'signed-out']);
  expect(sources).toHaveLength(1);
  stream.start();
  latest().say('hello', {});
  expect(seen.at(-1)).toBe('live');
});

test('twenty seconds of silence are a loss', async () => {
  latest().say('hello', {});
  await vi.advanceTimersByTimeAsync(19_000);
  latest().say('metrics', {});
  await vi.advanceTimersByTimeAsync(19_999);
  expect(seen.at(-1)).toBe('live');
  await vi.advanceTimersByTimeAsync(1);
  expect(seen.at(-1)).toBe('reconnecting');
});

test('a goodbye is a loss', () => {
  latest().say('hello', {});
  latest().say('bye', { reason: 'shutting down' });
  expect(seen.at(-1)).toBe('reconnecting');
});

test('a hidden tab gives its connection back, a glance away does not', async () => {
  latest().say('hello', {});
  stream.setVisible(false);
  await vi.advanceTimersByTimeAsync(9_999);
  stream.setVisible(true);
  await vi.advanceTimersByTimeAsync(5_000);
  expect(seen.at(-1)).toBe('live');
  stream.setVisible(false);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(seen.at(-1)).toBe('paused');
  expect(latest().closed).toBe(true);
  stream.setVisible(true);
  latest().say('hello', {});
  expect(seen.at(-1)).toBe('live');
});

test('for other topics it is opened anew, and stays live meanwhile', () => {
  const first = latest();
  first.say('hello', {});
  stream.renew();
  expect(first.closed).toBe(true);
  expect(sources).toHaveLength(2);
  first.say('metrics', {});
  latest().say('hello', {});
  expect(events.map(([name]) => name)).toEqual(['hello', 'hello']);
  expect(seen).toEqual(['connecting', 'live']);
  stream.stop();
  stream.renew();
  expect(sources).toHaveLength(2);
});

test('what a closed source still says is not heard', () => {
  const old = latest();
  stream.start();
  old.say('metrics', {});
  old.fail();
  expect(events).toEqual([]);
  expect(latest().closed).toBe(false);
});

test('an answer to a question of before opens nothing', async () => {
  held = [];
  latest().say('hello', {});
  latest().fail();
  stream.setVisible(false);
  await vi.advanceTimersByTimeAsync(10_000);
  stream.setVisible(true);
  latest().fail();
  for (const release of held) release();
  await vi.advanceTimersByTimeAsync(60_000);
  stream.stop();
  expect(sources.filter(({ closed }) => !closed)).toEqual([]);
});

test('a stream that is refused again and again is asked for less and less', async () => {
  for (const wait of [500, 1_000, 2_000, 4_000]) {
    const opened = sources.length;
    latest().fail();
    await vi.advanceTimersByTimeAsync(wait - 1);
    expect(sources).toHaveLength(opened);
    await vi.advanceTimersByTimeAsync(1);
    expect(sources).toHaveLength(opened + 1);
  }
  latest().say('hello', {});
  latest().fail();
  await vi.advanceTimersByTimeAsync(500);
  expect(sources).toHaveLength(6);
});
