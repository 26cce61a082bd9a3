/** Which lines of the audit log are looked for: it stands in the address. */
import type { AuditFilter } from '../../lib/api/calls/history.ts';
import type { AuditLine } from '../../lib/api/schema.ts';

export const NAMES = ['actor', 'action', 'object', 'result', 'request', 'q', 'from', 'to'] as const;

/** Of a token: the one line of what was done that does not begin with what came of it. */
const USED_FIRST = 'first of the day';

export function filterOf(query: URLSearchParams): AuditFilter {
  const read = (name: (typeof NAMES)[number]) => (query.get(name) ?? '').trim();
  const result = read('result');
  return {
    actor: read('actor'),
    action: read('action'),
    object: read('object'),
    result: result === 'done' || result === 'refused' ? result : '',
    request: read('request'),
    q: read('q'),
    from: read('from'),
    to: read('to'),
  };
}

/** Would the server find this line, as it looks for them? */
export function matches(line: AuditLine, filter: AuditFilter): boolean {
  const { actor, action, object, request, q, from, to } = filter;
  const { at, address, result, request_id } = line;
  const whole = [line.actor, address, line.action, line.object, result, request_id].join(' ').toLowerCase();
  const isDone = /^(done|version:)/.test(result) || result === USED_FIRST;
  return (
    (actor === '' || line.actor === actor) &&
    (action === '' || line.action === action || line.action.startsWith(`${action}.`)) &&
    (object === '' || line.object === object) &&
    (filter.result === '' || (filter.result === 'done') === isDone) &&
    (request === '' || request_id === request) &&
    whole.includes(q.toLowerCase()) &&
    (from === '' || Date.parse(at) >= Date.parse(from)) &&
    (to === '' || Date.parse(at) < Date.parse(to))
  );
}
