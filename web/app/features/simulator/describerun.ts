/** Describes the input of a run in a few words. */
import type { Ask, Chosen, Row, Run } from '../../lib/api/schema.ts';
import { count } from '../../lib/format/format.ts';
import { formatRate } from '../../lib/policy/rate.ts';
import { patterns } from '../../lib/text/preview.ts';
import { simulation } from '../../lib/text/run.ts';
import type { PatternName } from './traffic.ts';

const t = simulation;
const SOURCES_MAX = 2;

export function describeTraffic(ask: Ask | null): string {
  if (ask === null) return t.words.unkept;
  const { traffic } = ask;
  if (traffic === 'recorded') return t.words.recorded;
  if ('log' in traffic) {
    const tiers = Object.entries(traffic.log.tiers ?? {}).map(([kind, tier]) => t.words.tierOf(kind, tier));
    return tiers.length === 0 ? t.words.log : t.words.logTiers(tiers.join(', '));
  }
  const { rows } = traffic.made;
  const told = rows.slice(0, SOURCES_MAX).map(sourceInWords);
  return [...told, ...(rows.length > SOURCES_MAX ? [t.words.more(rows.length - SOURCES_MAX)] : [])].join(
    '; ',
  );
}

function sourceInWords(row: Row): string {
  const { pattern = 'steady', clients = 1, tier, value, kind = 'user' } = row;
  const name = (typeof pattern === 'string' ? pattern : Object.keys(pattern)[0]) as PatternName;
  const rate = formatRate({ limit: row.rate, period: row.per ?? '1s' });
  if (value) return t.words.one(`${kind}:${value}`, patterns[name], rate, row.for);
  return t.words.source(count(clients), tier ?? '', patterns[name], rate, row.for);
}

/** Changes and drafts were put on the policy that was in force. */
export function describePolicy(chosen: Chosen | undefined, run: Pick<Run, 'policy_version'>): string {
  if (chosen === undefined) return '';
  if (chosen === 'none') return t.policy.none;
  if (chosen === 'live') return t.policy.live(run.policy_version);
  if ('version' in chosen) return t.policy.version(chosen.version, '').trim();
  if ('draft' in chosen) return t.policy.draftShort(chosen.draft);
  if ('document' in chosen) return t.policy.documentShort;
  return t.policy.changesOn(chosen.changes.changes.length, run.policy_version);
}

/** Null is the default one. */
export function domainOf({ traffic }: Ask): string | null {
  if (traffic === 'recorded') return null;
  const { domain = 'default' } = 'made' in traffic ? traffic.made : traffic.log;
  return domain === 'default' ? null : domain;
}
