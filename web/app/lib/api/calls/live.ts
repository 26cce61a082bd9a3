/** Calls of the live pages: keys, nodes, figures, what needs a look. */
import { withQuery } from '../query.ts';
import { request } from '../request.ts';
import type {
  AskedKeys,
  AskedRequest,
  Explained,
  FiguresOfRange,
  GoOn,
  ListOfAlert,
  ListOfClientItem,
  ListOfHeaviest,
  ListOfNodeRow,
  ListOfNodeSecond,
  NodeDetails,
  OpenRollout,
  AskedOfKeys,
  NodeAnswers,
  WentOn,
} from '../schema.ts';

const nodePath = (name: string) => `/nodes/${encodeURIComponent(name)}`;

export const getNodes = (signal: AbortSignal) => request<ListOfNodeRow>('/nodes', { signal });
export const getNode = (name: string, signal: AbortSignal) =>
  request<NodeDetails>(nodePath(name), { signal });
export const getNodeHistory = (name: string, signal: AbortSignal) =>
  request<ListOfNodeSecond>(`${nodePath(name)}/history`, { signal });
export const forgetNode = (name: string) => request<undefined>(nodePath(name), { method: 'DELETE' });
export const resyncNode = (name: string) =>
  request<NodeAnswers>(`${nodePath(name)}/resync`, { method: 'POST' });
export const getRollout = (signal: AbortSignal) => request<OpenRollout>('/rollout', { signal });
export const goOnWithRollout = (body: GoOn) => request<WentOn>('/rollout', { method: 'POST', body });

export const explain = (body: AskedRequest, signal: AbortSignal) =>
  request<Explained>('/explain', { method: 'POST', body, signal });
export const peekKeys = (body: AskedKeys, signal: AbortSignal) =>
  request<NodeAnswers>('/keys/peek', { method: 'POST', body, signal });
export const chargeKeys = (body: AskedOfKeys) =>
  request<NodeAnswers>('/keys/charge', { method: 'POST', body });
export const resetKeys = (body: AskedOfKeys) => request<NodeAnswers>('/keys/reset', { method: 'POST', body });

export const getHeaviest = (limit: number, signal: AbortSignal) =>
  request<ListOfHeaviest>(`/metrics/top?by=key&of=denied&limit=${limit}`, { signal });

export interface RangeAsked {
  /** Unix milliseconds. */
  from: number;
  to: number;
  step: '1s' | '1m' | '1h';
  by: 'total' | 'limit' | 'tier' | 'rule' | 'node';
  /** Only this series; empty: all. */
  id?: string;
}

export const getRange = ({ from, to, step, by, id = '' }: RangeAsked, signal: AbortSignal) =>
  request<FiguresOfRange>(withQuery('/metrics', { from: `${from}`, to: `${to}`, step, by, id }), { signal });
export const getAlerts = (signal: AbortSignal) => request<ListOfAlert>('/alerts', { signal });

/** The first clients whose value begins so. */
export const getClientsByPrefix = (
  domain: string,
  { kind, prefix, limit }: { kind: string; prefix: string; limit: number },
  signal: AbortSignal,
) =>
  request<ListOfClientItem>(withQuery('/clients', { domain, kind, prefix, limit: `${limit}` }), { signal });
