/** The kinds of identity that the requests of a log have. */
import type { Upload } from '../../lib/api/schema.ts';

export function kindsOfLog({ clients, users, key }: Pick<Upload, 'clients' | 'users' | 'key'>): string[] {
  const named = key && key.kind !== 'ip' ? key.kind : 'user';
  return [...(clients > 0 ? ['ip'] : []), ...(users > 0 ? [named] : [])];
}
