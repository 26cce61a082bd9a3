/** A test request: whom it is about, and what nodes told. */
import type { Identity, NodeAnswers, Question } from '../../lib/api/schema.ts';
import { identityText } from '../../lib/policy/inspection.ts';
import { shortLimitName } from '../../lib/policy/limitname.ts';
import { nodeFailures } from '../../lib/state/fleet/nodefailures.ts';
import { overview } from '../../lib/text/overview.ts';

export interface TestRequest {
  request: Question;
  outcome: NodeAnswers;
}

/** Of a kind that the policy knows, where it knows any. */
export function whoOf(kinds: string[]): Identity {
  const kind = kinds.includes('user') ? 'user' : (kinds[0] ?? 'user');
  // An address for documentation.
  return { kind, value: kind === 'ip' ? '192.0.2.1' : 'ada' };
}

/** Nodes that say the same stand together. */
export function wordsOf({ request, outcome }: TestRequest): string[] {
  const t = overview.sent;
  const who = request.identities.map(identityText).join(' ');
  const said = new Map<string, { tell: (nodes: string) => string; nodes: string[] }>();
  for (const [node, told] of Object.entries(outcome.answers)) {
    if (told.what !== 'charge') continue;
    const { allowed, limit_id = null, unknown_domain } = told;
    const tell = (nodes: string): string => {
      if (unknown_domain) return t.unknownDomain(who, nodes, request.domain ?? 'default');
      if (limit_id === null) return t.noLimit(who, nodes);
      return (allowed ? t.allowed : t.denied)(who, nodes, shortLimitName(limit_id));
    };
    const same = said.get(tell(''));
    if (same) same.nodes.push(node);
    else said.set(tell(''), { tell, nodes: [node] });
  }
  const words = [
    ...[...said.values()].map(({ tell, nodes }) => tell(nodes.join(', '))),
    ...nodeFailures(outcome),
  ];
  return words.length === 0 ? [t.nobody] : words;
}
