/**
 * The request that the Inspector examines, as its address holds it:
 * `/inspect?key=user:ada&key=ip:10.2.8.9&method=POST&path=/v1/x`.
 */
import type { AskedRequest, Identity } from '../api/schema.ts';

export interface Inspection {
  domain: string;
  identities: Identity[];
  method: string;
  path: string;
  /** As it was typed; empty for 1. */
  cost: string;
}

const KIND = /^[a-z][a-z0-9_-]*$/;

/** `KIND:VALUE`, as the ids of clients are written too. */
export function parseIdentity(text: string): Identity | null {
  const at = text.indexOf(':');
  const [kind, value] = [text.slice(0, at).trim(), text.slice(at + 1).trim()];
  return at > 0 && KIND.test(kind) && value !== '' ? { kind, value } : null;
}

export function identityText({ kind, value }: Identity): string {
  return `${kind}:${value}`;
}

export function inspectionOf(query: URLSearchParams): Inspection {
  const keys = [...query.getAll('key'), ...query.getAll('client')];
  return {
    domain: query.get('domain') ?? 'default',
    identities: keys.flatMap((key) => parseIdentity(key) ?? []),
    method: query.get('method') ?? '',
    path: query.get('path') ?? '',
    cost: query.get('cost') ?? '',
  };
}

export function inspectAddress(question: Partial<Inspection> & Pick<Inspection, 'identities'>): string {
  const query = new URLSearchParams();
  if (question.domain !== undefined && question.domain !== 'default') query.set('domain', question.domain);
  for (const identity of question.identities) query.append('key', identityText(identity));
  for (const name of ['method', 'path', 'cost'] as const) {
    const value = question[name];
    if (value !== undefined && value !== '') query.set(name, value);
  }
  const text = query.toString();
  return text === '' ? '/inspect' : `/inspect?${text}`;
}

/** As the calls about keys and `POST /explain` take it. */
export function toRequest(question: Inspection): AskedRequest {
  return {
    domain: question.domain,
    identities: question.identities,
    ...(question.path === '' ? {} : { endpoint: question.path }),
    ...(question.method === '' ? {} : { method: question.method }),
    ...(question.cost === '' ? {} : { cost: Number(question.cost) }),
  };
}
