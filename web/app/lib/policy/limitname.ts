/** A limit's full name: `DOMAIN/tier:ID/LIMIT`, `DOMAIN/rule:ID/LIMIT` or `DOMAIN/client:KIND:VALUE/LIMIT`. */

export interface LimitName {
  domain: string;
  kind: string;
  owner: string;
  limit: string;
}

export function parseLimitName(name: string): LimitName | null {
  const match = /^([^/]+)\/([a-z]+):(.+)\/([^/]+)$/.exec(name);
  if (!match) return null;
  const [, domain = '', kind = '', owner = '', limit = ''] = match;
  return { domain, kind, owner, limit };
}

/** As it is shown: the domain only where it is not the usual one. */
export function shortLimitName(name: string): string {
  return name.replace(/^default\//, '');
}

export function limitName(domain: string, kind: string, owner: string, limit: string): string {
  return `${domain}/${kind}:${owner}/${limit}`;
}

/** The full name of a tier or rule. */
export function ownerName(domain: string, kind: 'tier' | 'rule', id: string): string {
  return `${domain}/${kind}:${id}`;
}

export function parseOwnerName(name: string): { domain: string; kind: string; id: string } | null {
  const match = /^([^/]+)\/([a-z]+):(.+)$/.exec(name);
  if (!match) return null;
  const [, domain = '', kind = '', id = ''] = match;
  return { domain, kind, id };
}
