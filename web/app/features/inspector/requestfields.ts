/** The fields of the request form, and their faults. */
import type { Identity } from '../../lib/api/schema.ts';
import type { Inspection } from '../../lib/policy/inspection.ts';
import { inspector } from '../../lib/text/inspector.ts';

export interface RequestFields {
  identities: Identity[];
  method: string;
  path: string;
  cost: string;
}

export const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'];

export function requestFieldsOf({ identities, method, path, cost }: Inspection, kind: string): RequestFields {
  const known = identities.map((one) => ({ ...one }));
  return { identities: known.length === 0 ? [{ kind, value: '' }] : known, method, path, cost };
}

/** By field: `kind 0`, `value 0`, `path`, `cost`. */
export function faultsOf(draft: RequestFields): Record<string, string> {
  const t = inspector.form.faults;
  const faults: Record<string, string> = {};
  draft.identities.forEach(({ kind, value }, at) => {
    if (!/^[a-z][a-z0-9_-]*$/.test(kind.trim())) faults[`kind ${at}`] = t.kind;
    else if (draft.identities.findIndex((one) => one.kind.trim() === kind.trim()) < at)
      faults[`kind ${at}`] = t.twice;
    if (value.trim() === '') faults[`value ${at}`] = t.value;
  });
  if (draft.path !== '' && !draft.path.startsWith('/')) faults['path'] = t.path;
  if (draft.cost !== '' && !(/^\d{1,16}$/.test(draft.cost) && Number(draft.cost) >= 1))
    faults['cost'] = t.cost;
  return faults;
}

export function inspectionFrom(draft: RequestFields, domain: string): Inspection {
  const identities = draft.identities.map(({ kind, value }) => ({ kind: kind.trim(), value: value.trim() }));
  return { domain, identities, method: draft.method, path: draft.path.trim(), cost: draft.cost };
}
