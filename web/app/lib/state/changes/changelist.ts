/** Turns entries into the change list that the server takes. */
import type { ChangeList } from '../../api/types.ts';
import { renamedTo, type Grammar } from '../../policy/form.ts';
import { limitName } from '../../policy/limitname.ts';
import { valueOf } from '../../policy/value.ts';
import { nameOf, type Entry } from './entry.ts';

/** Null while an entry has faults. */
export function changeListOf(entries: Entry[], message: string, grammar: Grammar): ChangeList | null {
  const list: Required<Pick<ChangeList, 'base_version' | 'message' | 'changes' | 'if_match' | 'carry'>> = {
    base_version: Math.min(...entries.map((entry) => entry.version)),
    message,
    changes: [],
    if_match: {},
    carry: {},
  };
  for (const entry of entries) {
    const { kind, domain, id, op, form } = entry;
    if (op !== 'create') list.if_match[nameOf(entry)] = entry.etag;
    if (op === 'delete') {
      list.changes.push({ op, kind, domain, id });
      continue;
    }
    const value = valueOf(kind, id, form, grammar);
    if (value === null) return null;
    const rename = op === 'put' ? renamedTo(form) : null;
    list.changes.push({ op, kind, domain, id, value, ...(rename === null ? {} : { rename }) });
    // Under another name they count anew.
    if (rename !== null) continue;
    for (const [limit, carry] of Object.entries(entry.carry)) {
      if (form.limits.some((row) => row.id.trim() === limit))
        list.carry[limitName(domain, kind, id, limit)] = carry;
    }
  }
  return list;
}
