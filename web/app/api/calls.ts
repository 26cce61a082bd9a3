/** The calls that the pages make, one line each. */
import { request } from './request.ts';
import type {
  ChangeList,
  ItemList,
  Meta,
  Metrics,
  Published,
  RuleItem,
  Session,
  SetupState,
  SignInProvider,
  TierItem,
  VersionPage,
} from './types.ts';

const inDomain = (domain: string) => `?domain=${encodeURIComponent(domain)}`;

export const getSession = () => request<Session>('/session', { open: true });
export const signIn = (name: string, password: string) =>
  request<Session>('/session', { method: 'POST', body: { name, password }, open: true });
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
async function whole<Of>(path: string, domain: string, signal: AbortSignal): Promise<ItemList<Of>> {
  const all = `${path}${inDomain(domain)}&limit=500`;
  const list = await request<ItemList<Of>>(all, { signal });
  while (list.next !== null) {
    const page = await request<ItemList<Of>>(`${all}&cursor=${encodeURIComponent(list.next)}`, { signal });
    list.items.push(...page.items);
    list.next = page.next;
  }
  return list;
}

export const getTiers = (domain: string, signal: AbortSignal) => whole<TierItem>('/tiers', domain, signal);
export const getTier = (domain: string, id: string, signal?: AbortSignal) =>
  request<TierItem>(`/tiers/${encodeURIComponent(id)}${inDomain(domain)}`, signal ? { signal } : {});
export const getRules = (domain: string, signal: AbortSignal) => whole<RuleItem>('/rules', domain, signal);
export const getRule = (domain: string, id: string, signal: AbortSignal) =>
  request<RuleItem>(`/rules/${encodeURIComponent(id)}${inDomain(domain)}`, { signal });

export const getVersions = (limit: number, signal: AbortSignal) =>
  request<VersionPage>(`/policy/versions?limit=${limit}`, { signal });
/** The same key again answers the first answer: a call whose answer was lost may be repeated. */
export const publish = (list: ChangeList, idempotencyKey: string) =>
  request<Published>('/policy/changes', {
    method: 'POST',
    body: list,
    headers: { 'idempotency-key': idempotencyKey },
  });
