/** The calls that the pages make, one line each. */
import { request } from './request.ts';
import type {
  ChangeList,
  ClientItem,
  Draft,
  DraftWithList,
  Item,
  ItemList,
  Kind,
  ListOfUncovered,
  Meta,
  Metrics,
  Objects,
  Published,
  RuleItem,
  Session,
  SetupState,
  SignInProvider,
  TierItem,
  Validated,
  VersionPage,
} from './types.ts';

const inDomain = (domain: string) => `?domain=${encodeURIComponent(domain)}`;

export const getSession = () => request<Session>('/session', { open: true });
export const signIn = (name: string, password: string, code?: string) =>
  request<Session>('/session', { method: 'POST', body: { name, password, code }, open: true });
export const signOut = () => request<undefined>('/session', { method: 'DELETE', last: true });

export const getProvider = () => request<SignInProvider>('/session/provider', { open: true });
/** Where a tab ends that was opened to sign in beside a page. */
export const SIGNED_IN = '/signed-in';
/** Not asked, but gone to: the provider sends the browser back to a path of this site. */
export const toProvider = (path: string) => `/api/v1/session/oidc?return=${encodeURIComponent(path)}`;

export const getSetup = () => request<SetupState>('/setup', { open: true });
export const setUp = (code: string, name: string, password: string) =>
  request<Session>('/setup', { method: 'POST', body: { code, name, password }, open: true });

export const getMeta = () => request<Meta>('/meta');
export const getMetrics = (signal?: AbortSignal) => request<Metrics>('/metrics', signal ? { signal } : {});

/** All pages of a list as one. */
async function whole<Of>(
  path: string,
  domain: string,
  signal: AbortSignal,
  more = '',
): Promise<ItemList<Of>> {
  const all = `${path}${inDomain(domain)}&limit=500${more}`;
  const list = await request<ItemList<Of>>(all, { signal });
  while (list.next !== null) {
    const page = await request<ItemList<Of>>(`${all}&cursor=${encodeURIComponent(list.next)}`, { signal });
    list.items.push(...page.items);
    list.next = page.next;
  }
  return list;
}

export const getTiers = (domain: string, signal: AbortSignal) => whole<TierItem>('/tiers', domain, signal);
export const getRules = (domain: string, signal: AbortSignal) => whole<RuleItem>('/rules', domain, signal);
/** The names of all domains. */
export const getDomains = async (signal: AbortSignal) =>
  (await request<ItemList<unknown>>('/domains?limit=1', { signal })).domains;
const SETS = { tier: 'tiers', rule: 'rules', client: 'clients', domain: 'domains' };
/** One object. */
export const getObject = <K extends Kind>(kind: K, domain: string, id: string, signal?: AbortSignal) =>
  request<Item<Objects[K]>>(
    `/${SETS[kind]}/${encodeURIComponent(id)}${kind === 'domain' ? '' : inDomain(domain)}`,
    signal ? { signal } : {},
  );
/** Where it can be kept from. */
export const toObject = (kind: Kind, domain: string, id: string) =>
  `/api/v1/${SETS[kind]}/${encodeURIComponent(id)}${inDomain(domain)}`;
export const getClientsOf = (tier: string, domain: string, signal: AbortSignal) =>
  whole<ClientItem>('/clients', domain, signal, `&tier=${encodeURIComponent(tier)}`);
/** Endpoints without a rule of their own. */
export const getUncovered = (signal: AbortSignal) =>
  request<ListOfUncovered>('/metrics/endpoints', { signal });

export const getVersions = (limit: number, signal?: AbortSignal) =>
  request<VersionPage>(`/policy/versions?limit=${limit}`, signal ? { signal } : {});
export const validate = (list: ChangeList, signal: AbortSignal) =>
  request<Validated>('/policy/validate', { method: 'POST', body: list, signal });
export const saveDraft = (list: ChangeList) => request<Draft>('/drafts', { method: 'POST', body: list });
export const getDraft = (id: string, signal: AbortSignal) =>
  request<DraftWithList>(`/drafts/${encodeURIComponent(id)}`, { signal });
/** The same key again answers the first answer: a call whose answer was lost may be repeated. */
export const publish = (list: ChangeList, idempotencyKey: string) =>
  request<Published>('/policy/changes', {
    method: 'POST',
    body: list,
    headers: { 'idempotency-key': idempotencyKey },
  });
