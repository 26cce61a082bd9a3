/** Calls about users, roles, tokens and one's own account. */
import { withQuery } from '../query.ts';
import { request } from '../request.ts';
import type {
  AppSecret,
  ListOfRoleItem,
  ListOfSessionItem,
  ListOfToken,
  ListOfUser,
  Made,
  Me,
  NewToken,
  NewUser,
  RecoveryCodes,
  SecondFactor,
  User,
  UserChange,
} from '../schema.ts';

const userPath = (name: string) => `/users/${encodeURIComponent(name)}`;
const sessionsOf = (name: string | null) => (name === null ? '/me/sessions' : `${userPath(name)}/sessions`);

export const getRoles = (signal: AbortSignal) => request<ListOfRoleItem>('/roles', { signal });

export const getUsers = (q: string, cursor: string | null, signal: AbortSignal) =>
  request<ListOfUser>(withQuery('/users', { sort: 'name', q, cursor }), { signal });
export const getUser = (name: string, signal?: AbortSignal) =>
  request<User>(userPath(name), signal ? { signal } : {});
export const addUser = (user: NewUser) => request<User>('/users', { method: 'POST', body: user });
export const changeUser = (user: User, change: UserChange) =>
  request<User>(userPath(user.id), { method: 'PATCH', body: change, headers: { 'if-match': user.etag } });
export const removeUser = (user: User) =>
  request<undefined>(userPath(user.id), { method: 'DELETE', headers: { 'if-match': user.etag } });
export const removeSecondFactorOf = (name: string) =>
  request<undefined>(`${userPath(name)}/second-factor`, { method: 'DELETE' });

/** Sessions of a user, or with null one's own. */
export const getSessions = (name: string | null, cursor: string | null, signal: AbortSignal) =>
  request<ListOfSessionItem>(withQuery(sessionsOf(name), { cursor }), { signal });
export const endSession = (name: string | null, id: string) =>
  request<undefined>(`${sessionsOf(name)}/${encodeURIComponent(id)}`, { method: 'DELETE' });
/** All of a user's; of one's own all but the one that asks. */
export const endSessions = (name: string | null) =>
  request<undefined>(sessionsOf(name), { method: 'DELETE' });

export const getTokens = (cursor: string | null, signal: AbortSignal) =>
  request<ListOfToken>(withQuery('/tokens', { cursor }), { signal });
export const makeToken = (token: NewToken) => request<Made>('/tokens', { method: 'POST', body: token });
export const replaceToken = (id: string) =>
  request<Made>(`/tokens/${encodeURIComponent(id)}/replace`, { method: 'POST' });
export const revokeToken = (id: string) =>
  request<undefined>(`/tokens/${encodeURIComponent(id)}`, { method: 'DELETE' });

export const getMe = (signal: AbortSignal) => request<Me>('/me', { signal });
export const changePassword = (present: string, password: string) =>
  request<undefined>('/me/password', { method: 'PUT', body: { present, password } });

const SECOND_FACTOR = '/me/second-factor';
export const getSecondFactor = (signal: AbortSignal) => request<SecondFactor>(SECOND_FACTOR, { signal });
/** Answers a secret for an app, whose codes are asked for once it has shown one. */
export const beginSecondFactor = (password: string) =>
  request<AppSecret>(SECOND_FACTOR, { method: 'POST', body: { password } });
export const confirmSecondFactor = (code: string) =>
  request<RecoveryCodes>(SECOND_FACTOR, { method: 'PUT', body: { code } });
export const removeSecondFactor = (password: string) =>
  request<undefined>(`${SECOND_FACTOR}/remove`, { method: 'POST', body: { password } });
