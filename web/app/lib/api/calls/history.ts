/** Calls of the record: versions, what differs between them, the way back, the audit log. */
import { withQuery } from '../query.ts';
import { request } from '../request.ts';
import type {
  Differences,
  InFile,
  ListOfAuditLine,
  ListedVersionWithDocument,
  ListOfListedVersion,
  Publication,
  RollBack,
  RollBackTried,
} from '../schema.ts';

export interface VersionFilter {
  q: string;
  /** Its key, such as `tier:pro`. */
  object: string;
  /** RFC 3339. */
  from: string;
  to: string;
}

export const getVersionPage = (filter: VersionFilter, cursor: string | null, signal: AbortSignal) =>
  request<ListOfListedVersion>(withQuery('/policy/versions', { ...filter, cursor }), { signal });
export const getVersion = (version: number, signal: AbortSignal) =>
  request<ListedVersionWithDocument>(`/policy/versions/${version}`, { signal });
export const getDiff = (from: number, to: number, signal: AbortSignal) =>
  request<Differences>(`/policy/diff?from=${from}&to=${to}`, { signal });
/** What going back would make of the newest version. */
export const tryBack = (back: RollBack, signal: AbortSignal) =>
  request<RollBackTried>('/policy/rollback?dry_run=true', { method: 'POST', body: back, signal });
/** On top of `present`, and of no other version. */
export const rollBack = (back: RollBack, present: number, idempotencyKey: string) =>
  request<Publication>('/policy/rollback', {
    method: 'POST',
    body: back,
    headers: { 'if-match': `"policy:${present}"`, 'idempotency-key': idempotencyKey },
  });

export interface AuditFilter {
  actor: string;
  action: string;
  object: string;
  result: '' | 'done' | 'refused';
  /** Its id. */
  request: string;
  q: string;
  /** RFC 3339. */
  from: string;
  to: string;
}

export const getAuditPage = (filter: Partial<AuditFilter>, cursor: string | null, signal: AbortSignal) =>
  request<ListOfAuditLine>(withQuery('/audit', { ...filter, cursor }), { signal });
/** Not asked, but gone to: the browser keeps the file. */
export const toAuditExport = (filter: AuditFilter, format: 'csv' | 'ndjson') =>
  `/api/v1${withQuery('/audit/export', { ...filter, format })}`;
export const toPolicyExport = (version: number) => `/api/v1/policy/export?format=json&version=${version}`;

/** The file of the server's --policy, beside the newest version. */
export const getPolicyFile = (signal: AbortSignal) => request<InFile>('/policy/file', { signal });
