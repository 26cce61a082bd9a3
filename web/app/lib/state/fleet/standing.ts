/**
 * The standing of a node: whether it runs the newest version, and how far behind it is. Pure: the texts are in
 * `text/nodes.ts`.
 */
import type { NodeRow, NodeSecond } from '../../api/schema.ts';
import { isAway } from './noderows.ts';

export type VersionStanding =
  | { what: 'has'; tookMs: number | null }
  /** It decides by a newer one. */
  | { what: 'beyond'; version: number }
  | { what: 'refused'; why: string }
  /** The version is not for it yet. */
  | { what: 'keeps'; version: number }
  | { what: 'silent' }
  | { what: 'gone' }
  | { what: 'waits' };

/** How a node stands to a version that was published; `told` is what it said of that one. */
export function standing(
  node: NodeRow,
  version: number,
  told?: { version: number; took_ms: number | null; refused?: string | null },
): VersionStanding {
  const said = told?.version === version ? told : null;
  if (node.policy_version === version || (said && !said.refused)) {
    return { what: 'has', tookMs: said?.took_ms ?? null };
  }
  if (node.policy_version > version) return { what: 'beyond', version: node.policy_version };
  const refused = said?.refused ?? (node.refused?.version === version ? node.refused.why : null);
  if (refused) return { what: 'refused', why: refused };
  if (isAway(node)) return { what: 'gone' };
  if (node.target_version < version) return { what: 'keeps', version: node.policy_version };
  return node.presence === 'silent' ? { what: 'silent' } : { what: 'waits' };
}

/** Whole seconds for which it has not had the version that it should have; 0: it has it; null: it is not there. */
export function lagS(node: NodeRow, nowMs: number): number | null {
  if (isAway(node)) return null;
  if (node.behind_since === null) return 0;
  return Math.max(0, Math.floor((nowMs - Date.parse(node.behind_since)) / 1000));
}

/** In one unit. */
export function duration(seconds: number): string {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7_200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3_600)} h` : `${Math.floor(seconds / 86_400)} d`;
}

/** Seconds that may pass until one is missed. */
const GAP_S = 2.5;

/** One figure of some seconds, to be drawn: times in seconds, with a gap wherever seconds are missing. */
export function columnOf(
  seconds: NodeSecond[],
  figure: 'p99_us' | 'lag_s',
): [times: number[], values: (number | null)[]] {
  const [times, values]: [number[], (number | null)[]] = [[], []];
  for (const second of seconds) {
    const [at, last] = [second.t / 1000, times.at(-1)];
    if (last !== undefined && at - last > GAP_S) {
      times.push((last + at) / 2);
      values.push(null);
    }
    times.push(at);
    values.push(second[figure]);
  }
  return [times, values];
}
