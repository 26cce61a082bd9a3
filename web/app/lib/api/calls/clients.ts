/** Clients: lists of them, one, its override, many at once, and what is known of their requests. */
import { withQuery } from '../query.ts';
import { request } from '../request.ts';
import type {
  BulkTried,
  ClientFilter,
  Explained,
  ImportReport,
  Imported,
  ListOfClientItem,
  NodeAnswers as Peeked,
  PeekedLimit,
  Publication,
  Standing,
  Standings,
} from '../schema.ts';
import type { ClientItem, Override } from '../types.ts';

export type { Heaviest, LineReport, LimitState } from '../schema.ts';
export type { ClientFilter, Explained, ImportReport, Peeked, PeekedLimit, Standing };
export type ClientPage = Omit<ListOfClientItem, 'items'> & { items: ClientItem[] };

/** What every publish of clients answers. */
export type PublishedVersion = Pick<Publication, 'version' | 'others_version'>;

/** One change for all that match: a merge patch of each, or their removal. */
export interface Bulk {
  domain: string;
  matching: ClientFilter;
  patch?: Record<string, unknown>;
  remove?: true;
  /** Nothing is done where another number matches. */
  expected: number;
  message: string;
}

export interface PageAsked {
  limit: number;
  after: string | null;
  backwards: boolean;
}

export type Missing = 'keep' | 'remove';

const pathOf = (id: string) => `/clients/${encodeURIComponent(id)}`;

/** Sorted: so a page goes on where the one before ended, whatever others do meanwhile. */
export const getClients = (
  { domain, filter, deniedNow }: { domain: string; filter: ClientFilter; deniedNow: boolean },
  page: PageAsked,
  signal: AbortSignal,
) =>
  request<ClientPage>(
    withQuery('/clients', {
      domain,
      kind: filter.kind ?? null,
      prefix: filter.prefix ?? null,
      q: filter.q ?? null,
      tier: filter.tier ?? null,
      tag: filter.tag ?? null,
      has_override: filter.has_override?.toString() ?? null,
      denied_now: deniedNow ? 'true' : null,
      sort: page.backwards ? '-name' : 'name',
      limit: String(page.limit),
      cursor: page.after,
    }),
    { signal },
  );

/** Without an entity tag the client is to be new. */
export const giveOverride = (domain: string, id: string, etag: string | null, value: Override) =>
  request<PublishedVersion>(withQuery(`${pathOf(id)}/override`, { domain }), {
    method: 'PUT',
    body: value,
    headers: etag === null ? { 'if-none-match': '*' } : { 'if-match': etag },
  });
export const endOverride = (domain: string, id: string, etag: string) =>
  request<PublishedVersion>(withQuery(`${pathOf(id)}/override`, { domain }), {
    method: 'DELETE',
    headers: { 'if-match': etag },
  });

export const tryBulk = (bulk: Bulk) =>
  request<BulkTried>('/clients/bulk?dry_run=true', { method: 'POST', body: bulk });
/** In the version that it was tried on, and in no other. */
export const changeClients = (bulk: Bulk, version: number, idempotencyKey: string) =>
  request<PublishedVersion>('/clients/bulk', {
    method: 'POST',
    body: bulk,
    headers: { 'if-match': `"policy:${version}"`, 'idempotency-key': idempotencyKey },
  });

export const tryImport = (domain: string, missing: Missing, csv: Blob, signal: AbortSignal) =>
  request<Imported>(withQuery('/clients/import', { domain, missing, dry_run: 'true' }), {
    method: 'POST',
    body: csv,
    signal,
  });
export interface ToImport {
  domain: string;
  missing: Missing;
  csv: Blob;
  /** The policy version that it was tried on: it goes into no other. */
  version: number;
  message: string;
}
export const importClients = (to: ToImport, idempotencyKey: string) =>
  request<PublishedVersion>(
    withQuery('/clients/import', { domain: to.domain, missing: to.missing, message: to.message }),
    {
      method: 'POST',
      body: to.csv,
      headers: { 'if-match': `"policy:${to.version}"`, 'idempotency-key': idempotencyKey },
    },
  );
export const exportAddress = (domain: string) => withQuery('/api/v1/clients/export', { domain });

/** How clients stand just now, a hundred at a time at most. Charges nothing. */
export const getStandings = (domain: string, ids: string[], signal: AbortSignal) =>
  request<Standings>('/clients/standings', { method: 'POST', body: { domain, ids }, signal });

/** How the limits of a client stand, on each node. Charges nothing. */
export const peek = (domain: string, kind: string, value: string, signal: AbortSignal) =>
  request<Peeked>('/keys/peek', {
    method: 'POST',
    body: { request: { domain, identities: [{ kind, value }] } },
    signal,
  });
/** Which limits a client meets, and where they come from. Charges nothing. */
export const explain = (domain: string, kind: string, value: string, signal: AbortSignal) =>
  request<Explained>('/explain', { method: 'POST', body: { domain, identities: [{ kind, value }] }, signal });
