/** The Inspector's address. */
import { expect, test } from 'vitest';
import { toRequest, inspectAddress, parseIdentity, inspectionOf } from '../app/lib/policy/inspection.ts';

test('an identity is a kind and a value, which may have colons itself', () => {
  expect(parseIdentity('user:ada')).toEqual({ kind: 'user', value: 'ada' });
  expect(parseIdentity(' ip : 2001:db8::1 ')).toEqual({ kind: 'ip', value: '2001:db8::1' });
  for (const text of ['ada', ':ada', 'user:', 'Big User:ada', '']) expect(parseIdentity(text)).toBeNull();
});

test('an address says the whole question, and no more', () => {
  const question = {
    domain: 'eu',
    identities: [
      { kind: 'user', value: 'a&b=c' },
      { kind: 'ip', value: '2001:db8::1' },
    ],
    method: 'POST',
    path: '/v1/x?y',
    cost: '3',
  };
  const address = inspectAddress(question);
  expect(inspectionOf(new URL(address, 'http://x').searchParams)).toEqual(question);
  expect(inspectAddress({ domain: 'default', identities: [{ kind: 'user', value: 'ada' }], path: '' })).toBe(
    '/inspect?key=user%3Aada',
  );
  expect(inspectAddress({ identities: [] })).toBe('/inspect');
});

test('what was left out is not asked', () => {
  const question = inspectionOf(new URLSearchParams('client=user:ada'));
  expect(toRequest(question)).toEqual({ domain: 'default', identities: [{ kind: 'user', value: 'ada' }] });
});
