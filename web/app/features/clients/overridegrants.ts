/** The grant of the override in a client's form: none, limits, blocked or unlimited. */
import { hasOverride, type Form } from '../../lib/policy/form.ts';

export type Grant = 'none' | 'limits' | 'blocked' | 'unlimited';
export const GRANTS: Grant[] = ['none', 'limits', 'blocked', 'unlimited'];

export const UNTIL = 'override.until';
export const REASON = 'override.reason';

export function grantOf(form: Form): Grant {
  const { fields } = form;
  if (fields['override.blocked'] === true) return 'blocked';
  if (fields['override.unlimited'] === true) return 'unlimited';
  return hasOverride(form) ? 'limits' : 'none';
}

/** Changes the form: another grant has the same end and reason, and none has neither. */
export function grant(form: Form, what: Grant, until: string): void {
  const { fields } = form;
  for (const name of ['override.blocked', 'override.unlimited']) Reflect.deleteProperty(fields, name);
  if (what === 'none') {
    for (const name of Object.keys(fields).filter((one) => one.startsWith('override.')))
      Reflect.deleteProperty(fields, name);
    form.limits = [];
    return;
  }
  if (what !== 'limits') fields[`override.${what}`] = true;
  if (!(UNTIL in fields)) fields[UNTIL] = until;
  if (!(REASON in fields)) fields[REASON] = '';
}
