/**
 * An OpenID Connect provider for tests, on a free port of this machine; with TLS where `TIDEGATE_TEST_CERT` and
 * `TIDEGATE_TEST_KEY` name files. It prints its issuer, and ends with its standard input.
 *
 * Whoever signs in is whom `login_hint` says, or else `TIDEGATE_TEST_PERSON`: his claims as JSON. With `fault` among them, what is wrong with his ID token.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { exportJWK, generateKeyPair, importJWK, SignJWT, decodeJwt } from 'jose';
import { Provider } from 'oidc-provider';

// Making RSA keys takes a second, so they are kept beside the packages. Of two processes that make them, each uses its own.
const KEPT = new URL('node_modules/.cache/keys.json', import.meta.url);
const newKey = async (kid) => {
  const { privateKey } = await generateKeyPair('RS256', { extractable: true });
  return { ...(await exportJWK(privateKey)), kid, alg: 'RS256', use: 'sig' };
};
const newKeys = async () => {
  const keys = await Promise.all(['first', 'second', 'stranger'].map(newKey));
  const written = new URL(`keys-${process.pid}.json`, KEPT);
  mkdirSync(new URL('.', KEPT), { recursive: true });
  writeFileSync(written, JSON.stringify(keys), { mode: 0o600 });
  renameSync(written, KEPT);
  return keys;
};
const key = async (secret) => {
  const { kid, alg, use, kty, n, e } = secret;
  return { privateKey: await importJWK(secret), secret, open: { kid, alg, use, kty, n, e } };
};
const keys = existsSync(KEPT) ? JSON.parse(readFileSync(KEPT, 'utf8')) : await newKeys();
const [first, second, stranger] = await Promise.all(keys.map(key));

const { TIDEGATE_TEST_CERT: cert, TIDEGATE_TEST_KEY: secret } = process.env;
// How the client shows who it is, if not as it likes; and whether a code is taken more than once.
const { TIDEGATE_TEST_AUTH: auth, TIDEGATE_TEST_CODES: codes } = process.env;
const server = cert ? createTlsServer({ cert: readFileSync(cert), key: readFileSync(secret) }) : createServer();
await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
const issuer = `${cert ? 'https' : 'http'}://127.0.0.1:${server.address().port}`;

const people = new Map();
let rotated = false;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'tidegate',
      // Has to be escaped on its way.
      client_secret: 'a secret: 100% + more/',
      ...(auth ? { token_endpoint_auth_method: auth } : {}),
      // Of native clients the port may be any.
      application_type: 'native',
      redirect_uris: ['http://127.0.0.1', 'https://limits.example'].map((url) => `${url}/api/v1/session/oidc/callback`),
    },
  ],
  ...(auth ? { clientAuthMethods: [auth] } : {}),
  jwks: { keys: [first.secret] },
  cookies: { keys: ['of tests'] },
  claims: { openid: ['sub', 'groups'], profile: ['preferred_username'], email: ['email'] },
  // All that is known of somebody is in the ID token.
  conformIdTokenClaims: false,
  features: { devInteractions: { enabled: false } },
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (_, sub) => ({ accountId: sub, claims: () => people.get(sub) }),
  // Nobody is asked whether he agrees.
  async loadExistingGrant(ctx) {
    const { client, session } = ctx.oidc;
    // What was agreed to stands, also for a code of another tab.
    const given = session.grantIdFor(client.clientId);
    const known = given && (await provider.Grant.find(given));
    if (known) return known;
    const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
    grant.addOIDCScope('openid profile email');
    await grant.save();
    return grant;
  },
  renderError: (ctx, out) => (ctx.body = out),
});

if (codes === 'again') provider.AuthorizationCode.prototype.consume = async () => {};

const encoded = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
const signed = (claims, { privateKey, open }, alg = 'RS256') =>
  new SignJWT(claims).setProtectedHeader({ alg, kid: open.kid }).sign(privateKey);

/** What is wrong with an ID token, by name. */
const FAULTS = {
  none: (claims) => `${encoded({ alg: 'none' })}.${encoded(claims)}.`,
  tampered: (claims, token) => {
    const [header, , signature] = token.split('.');
    return `${header}.${encoded({ ...claims, groups: ['admins'] })}.${signature}`;
  },
  /** By what everybody knows. */
  hmac: (claims) =>
    new SignJWT(claims)
      .setProtectedHeader({ alg: 'HS256', kid: 'first' })
      .sign(new TextEncoder().encode(JSON.stringify(first.open))),
  secret: (claims) =>
    new SignJWT(claims)
      .setProtectedHeader({ alg: 'HS256' })
      .sign(new TextEncoder().encode('a secret: 100% + more/')),
  stranger: (claims) => signed(claims, stranger),
  expired: (claims) => signed({ ...claims, iat: claims.iat - 7_200, exp: claims.iat - 3_600 }, first),
  audience: (claims) => signed({ ...claims, aud: 'another' }, first),
  audiences: (claims) => signed({ ...claims, aud: ['tidegate', 'another'] }, first),
  issuer: (claims) => signed({ ...claims, iss: 'https://id.example' }, first),
  nonce: (claims) => signed({ ...claims, nonce: 'another' }, first),
  without_nonce: ({ nonce, ...claims }) => signed(claims, first),
  nobody: (claims) => signed({ ...claims, sub: '' }, first),
  absent: () => undefined,
  hangs: () => new Promise(() => {}),
  /** Nothing is wrong: the key is another from now on. */
  rotated: (claims) => {
    rotated = true;
    return signed(claims, second);
  },
};

provider.use(async (ctx, next) => {
  await next();
  const fault = FAULTS[people.get(ctx.oidc?.account?.accountId)?.fault];
  if (ctx.oidc?.route === 'token' && ctx.body.id_token && fault) {
    ctx.body.id_token = await fault(decodeJwt(ctx.body.id_token), ctx.body.id_token);
  }
  if (ctx.oidc?.route === 'jwks' && rotated) ctx.body = { keys: [second.open] };
});

const answer = provider.callback();
server.on('request', async (request, response) => {
  if (!request.url.startsWith('/interaction/')) return answer(request, response);
  try {
    const { params } = await provider.interactionDetails(request, response);
    const person = JSON.parse(params.login_hint ?? process.env.TIDEGATE_TEST_PERSON);
    people.set(person.sub, person);
    const result = person.refuses
      ? { error: 'access_denied', error_description: 'no' }
      : { login: { accountId: person.sub }, consent: {} };
    await provider.interactionFinished(request, response, result);
  } catch (error) {
    response.writeHead(500).end(String(error));
  }
});

console.log(issuer);
process.stdin.on('end', () => process.exit()).resume();
