/** Calls of what-if runs, the logs they are run on, and previews. */
import { withQuery } from '../query.ts';
import { request } from '../request.ts';
import type {
  Ask,
  ListOfDecisionRow,
  ListOfDraft,
  ListOfRun,
  ListOfTimelineRow,
  ListOfUpload,
  PreviewAnswer,
  PreviewAsk,
  Run,
  Upload,
} from '../schema.ts';

const at = (id: string) => `/simulations/${encodeURIComponent(id)}`;

export const getRuns = (cursor: string | null, signal: AbortSignal) =>
  request<ListOfRun>(withQuery('/simulations', { limit: '20', cursor }), { signal });
export const getRun = (id: string, signal: AbortSignal) => request<Run>(at(id), { signal });
export const startRun = (ask: Ask) => request<Run>('/simulations', { method: 'POST', body: ask });
export const stopRun = (id: string) => request<Run>(`${at(id)}/stop`, { method: 'POST' });
export const forgetRun = (id: string) => request<undefined>(at(id), { method: 'DELETE' });

export interface TimelineQuery {
  sort: string;
  outcome: string;
  limit: string;
  cursor: string | null;
  bucket?: string;
}
export const getTimeline = (id: string, query: TimelineQuery, signal: AbortSignal) =>
  request<ListOfTimelineRow>(withQuery(`${at(id)}/timeline`, { ...query }), { signal });

export interface DecisionsQuery {
  key: string;
  from: string;
  outcome: string;
  cursor: string | null;
}
export const getDecisions = (id: string, query: DecisionsQuery, signal: AbortSignal) =>
  request<ListOfDecisionRow>(withQuery(`${at(id)}/decisions`, { ...query, limit: '50' }), { signal });

export const getUploads = (signal: AbortSignal) => request<ListOfUpload>('/uploads?limit=100', { signal });
export interface LogQuery {
  format: string;
  key: string;
  kind: string;
  save: string;
}
export const sendLog = (file: File, query: LogQuery, signal: AbortSignal) =>
  request<Upload>(withQuery('/uploads', { ...query }), {
    method: 'POST',
    body: file,
    signal,
  });
export const removeLog = (id: string) =>
  request<undefined>(`/uploads/${encodeURIComponent(id)}`, { method: 'DELETE' });

export const getDrafts = (signal: AbortSignal) => request<ListOfDraft>('/drafts?limit=100', { signal });
export const preview = (ask: PreviewAsk, signal: AbortSignal) =>
  request<PreviewAnswer>('/simulations/preview', { method: 'POST', body: ask, signal });
