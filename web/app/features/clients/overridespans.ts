/** The durations that an override can be given for, the default first. */
import * as words from '../../lib/text/clients.ts';
import { DAY_MS, HOUR_MS, USUAL_MS } from './overrideend.ts';

const t = words.overrideForm;
const hours = (number: number) => ({ ms: number * HOUR_MS, name: t.inHours(number) });
const days = (number: number) => ({ ms: number * DAY_MS, name: t.inDays(number) });

export const spans = {
  long: [
    { ms: USUAL_MS, name: t.inDays(7) },
    { ms: HOUR_MS, name: t.inHour },
    { ms: DAY_MS, name: t.inDay },
    days(2),
    days(30),
  ],
  /** For those who may give none that lasts. */
  short: [{ ms: DAY_MS, name: t.inDay }, { ms: HOUR_MS, name: t.inHour }, hours(4), hours(12)],
};
