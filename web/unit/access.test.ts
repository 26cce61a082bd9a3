/** Names of browsers, ends of tokens, and who may what. */
// @vitest-environment happy-dom
import { afterEach, describe, expect, test, vi } from 'vitest';
import { browserName } from '../app/features/access/browsername.ts';
import { expiryOf, expiresAt } from '../app/features/access/expiry.ts';
import { faultsAt, hasStatus } from '../app/lib/api/faults.ts';
import { RefusedError, UnreachableError } from '../app/lib/api/request.ts';

test('browsers are called by their names', () => {
  const like = 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)';
  for (const [said, browser, system] of [
    [`${like} Chrome/156.0.0.0 Safari/537.36`, 'Chrome 156', 'Linux'],
    [`${like} HeadlessChrome/156.0.0.0 Safari/537.36`, 'Chrome 156', 'Linux'],
    [`${like} Chrome/156.0.0.0 Safari/537.36 Edg/155.0.0.0`, 'Edge 155', 'Linux'],
    [
      'Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0',
      'Firefox 140',
      'Windows',
    ],
    [
      'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Safari/605.1.15',
      'Safari 18',
      'macOS',
    ],
    [
      'Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Mobile/15E148 Safari/604.1',
      'Safari 18',
      'iOS',
    ],
    [
      'Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Mobile Safari/537.36',
      'Chrome 156',
      'Android',
    ],
    ['curl/8.5.0', 'curl 8', null],
  ] as const)
    expect(browserName(said), said).toEqual({ browser, system });
  expect(browserName('')).toBeNull();
  expect(browserName('something of its own')).toBeNull();
});

describe('ends of tokens', () => {
  const now = Date.parse('2026-11-23T12:00:00Z');

  test('are told from now, and which of them is soon', () => {
    expect(expiryOf('2026-12-02T13:00:00Z', now)).toEqual({ words: 'in 9 d', soon: true });
    expect(expiryOf('2027-02-21T12:00:00Z', now)).toEqual({ words: 'in 90 d', soon: false });
    expect(expiryOf('2026-11-23T12:00:30Z', now)).toEqual({ words: 'in less than a minute', soon: true });
    expect(expiryOf(null, now)).toEqual({ words: 'no end', soon: false });
  });

  test('are told to the server, and the usual one is left to it', () => {
    expect(expiresAt('usual', '', 'utc', now)).toBeUndefined();
    expect(expiresAt('none', '', 'utc', now)).toBeNull();
    expect(expiresAt('month', '', 'utc', now)).toBe('2026-12-23T12:00:00.000Z');
    expect(expiresAt('year', '', 'utc', now)).toBe('2027-11-23T12:00:00.000Z');
    expect(expiresAt('day', '2026-12-01', 'utc', now)).toBe('2026-12-01T23:59:00.000Z');
  });
});

test('faults stand at their fields', () => {
  const errors = [
    { pointer: '/name', code: 'invalid', message: 'too long' },
    { parameter: 'q', code: 'invalid', message: 'elsewhere' },
  ];
  const refused = new RefusedError({ code: 'invalid', title: 'x', status: 422, errors });
  expect(faultsAt(refused)).toEqual({ '/name': 'too long' });
  expect(faultsAt(new UnreachableError())).toEqual({});
  expect(hasStatus(refused, 422)).toBe(true);
  expect(hasStatus(refused, 412)).toBe(false);
  expect(hasStatus(new UnreachableError(), 422)).toBe(false);
});

describe('roles', () => {
  afterEach(() => vi.unstubAllGlobals());

  test('each may what those before it may, and one that is not known nothing', async () => {
    vi.stubGlobal('BroadcastChannel', vi.fn());
    const { ROLES, session } = await import('../app/lib/state/session.svelte.ts');
    const may = (role: string) => {
      session.user = {
        name: 'ana',
        role,
        csrf: '',
        expires_at: '',
        environment: null,
        production: false,
      } as typeof session.user;
      return ROLES.filter((one) => session.may(one));
    };
    expect(may('viewer')).toEqual(['viewer']);
    expect(may('editor')).toEqual(['viewer', 'operator', 'editor']);
    expect(may('admin')).toEqual(ROLES);
    expect(may('owner')).toEqual([]);
    session.user = null;
    expect(session.may('viewer')).toBe(false);
  });
});
