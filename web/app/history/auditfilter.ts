/** Which lines of the audit log are looked for: it stands in the address. */
import type { AuditFilter } from '../api/calls/history.ts';
import type { AuditLine } from '../api/schema.ts';

export const NAMES = ['actor', 'action', 'object', 'q', 'from', 'to'] as const;

export function filterOf(query: URLSearchParams): AuditFilter {
  const read = (name: (typeof NAMES)[number]) => (query.get(name) ?? '').trim();
  return {
    actor: read('actor'),
    action: read('action'),
    object: read('object'),
    q: read('q'),
    from: read('from'),
    to: read('to'),
  };
}

/** Would the server find this line, as it looks for them? */
export function matches(line: AuditLine, { actor, action, object, q, from, to }: AuditFilter): boolean {
  const { at, address, result } = line;
  const whole = [line.actor, address, line.action, line.object, result].join(' ').toLowerCase();
  return (
    (actor === '' || line.actor === actor) &&
    (action === '' || line.action === action || line.action.startsWith(`${action}.`)) &&
    (object === '' || line.object === object) &&
    whole.includes(q.toLowerCase()) &&
    (from === '' || Date.parse(at) >= Date.parse(from)) &&
    (to === '' || Date.parse(at) < Date.parse(to))
  );
}
