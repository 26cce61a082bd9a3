/** Which objects each version changed, from the lines of the audit log, newest first. */
import type { AuditLine } from '../api/schema.ts';
import { objectName } from './differences.ts';

export interface Touched {
  /** As the audit log has it. */
  key: string;
  name: string;
  removed: boolean;
}

/** The number in `version:129`; null of anything else. */
export function versionIn(name: string): number | null {
  const match = /^version:(\d+)$/.exec(name);
  return match ? Number(match[1]) : null;
}

/** Of the version that the lines end in, some may be missing: it is left out unless these are all lines. */
export function objectsByVersion(lines: AuditLine[], areAll: boolean): Map<number, Touched[]> {
  const found = new Map<number, Touched[]>();
  for (const { object, action, result } of lines) {
    const version = versionIn(result);
    if (version === null) continue;
    const touched = found.get(version) ?? [];
    touched.push({ key: object, name: nameOf(object), removed: action === 'object.remove' });
    found.set(version, touched);
  }
  const last = [...found.keys()].pop();
  if (!areAll && last !== undefined) found.delete(last);
  return found;
}

/** `web/tier:pro` in words. */
function nameOf(key: string): string {
  const match = /^(?:([^/:]+)\/)?([a-z]+):(.*)$/s.exec(key);
  if (!match) return key;
  const [, domain = 'default', kind = '', id = ''] = match;
  return objectName(kind, id, domain);
}
