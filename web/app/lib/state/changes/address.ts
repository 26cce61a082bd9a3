/** Where an object is edited. */
import { withQuery } from '../../api/query.ts';
import { pathOf } from '../router.ts';
import type { EntryKey } from './entry.ts';

export function addressOf({ kind, domain, id }: EntryKey): string {
  const path = kind === 'domain' ? '/domain' : pathOf(kind, id);
  return withQuery(path, { domain: domain === 'default' ? null : domain });
}
