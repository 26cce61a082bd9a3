/** Users, tokens, and one's own account. */
import type { Page } from '@playwright/test';
import { expect, PASSWORD, readOnly, test } from './fixtures.ts';
import { addUser, call, signedIn } from './people.ts';
import { totp } from './totp.ts';

const NEW_PASSWORD = 'another few words of mine';
const userRow = (page: Page, name: string) =>
  page.getByRole('region', { name: 'Users' }).getByRole('row', { name: new RegExp(`^${name}\\b`) });
const tokenRow = (page: Page, name: string) =>
  page.getByRole('region', { name: 'Tokens' }).getByRole('row', { name: new RegExp(`^${name}\\b`) });
const userDialog = (page: Page, name: string) => page.getByRole('dialog', { name: `User ${name}` });

async function trySignIn(page: Page, name: string, password: string): Promise<number> {
  const answer = await fetch(new URL('/api/v1/session', page.url()), {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name, password }),
  });
  return answer.status;
}

test('a user is added by keys; a name or password that does not do is said at its field', async ({
  admin,
  watch,
}) => {
  watch.allow(/status of (412|422)/);
  await admin.goto('/access/users');
  await expect(userRow(admin, 'admin')).toContainText('you');
  await admin.keyboard.press('n');
  const dialog = admin.getByRole('dialog', { name: 'New user' });
  await expect(dialog.getByLabel('Name')).toBeFocused();
  await admin.keyboard.type('Ben!');
  await dialog.getByLabel('Role').selectOption('editor');
  await expect(dialog.getByText('change the policy: publish')).toBeVisible();
  await dialog.getByLabel('Password', { exact: true }).fill('short');
  await admin.keyboard.press('Enter');
  await expect(dialog.getByLabel('Name')).toHaveAttribute('aria-invalid', 'true');
  await expect(dialog.getByLabel('Password', { exact: true })).toHaveAttribute('aria-invalid', 'true');
  await dialog.getByLabel('Name').fill('admin');
  await dialog.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await dialog.getByRole('button', { name: 'Add user' }).click();
  await expect(dialog.getByText('A user has this name')).toBeVisible();
  await expect(dialog.getByLabel('Password', { exact: true })).toHaveValue(PASSWORD);
  await dialog.getByLabel('Name').fill('ben');
  await dialog.getByRole('button', { name: 'Add user' }).click();
  await expect(dialog).toHaveCount(0);
  await expect(userRow(admin, 'ben')).toContainText('editor');
  await expect(userRow(admin, 'ben')).toContainText('never');
  expect(await trySignIn(admin, 'ben', PASSWORD)).toBe(200);
  await admin.getByLabel('Filter').fill('be');
  await expect(userRow(admin, 'admin')).toHaveCount(0);
  await admin.getByLabel('Filter').fill('nobody');
  await expect(admin.getByText('No user matches “nobody”')).toBeVisible();
});

test('a role that changes ends the sessions; the audit log is a step away', async ({
  admin,
  browser,
  server,
  watch,
}) => {
  watch.allow(/status of 401/);
  await addUser(admin, 'ben', 'viewer');
  const context = await signedIn(browser, server, 'ben');
  const ben = await context.newPage();
  await ben.goto('/access/users');
  await expect(ben.getByText('your role is viewer')).toBeVisible();
  await admin.goto('/access/users');
  await admin.getByRole('link', { name: 'ben' }).click();
  const dialog = userDialog(admin, 'ben');
  await expect(dialog.getByText('Last seen: just now')).toBeVisible();
  await expect(dialog.getByRole('button', { name: 'Change role' })).toBeDisabled();
  await dialog.getByLabel('Role').selectOption('editor');
  await dialog.getByRole('button', { name: 'Change role' }).click();
  await expect(dialog.getByText('ben is editor now')).toBeVisible();
  await expect(dialog.getByText('Nobody is signed in.')).toBeVisible();
  await expect(ben.getByRole('dialog', { name: 'Sign in again' })).toBeVisible();
  await dialog.getByRole('link', { name: 'Line of the audit log' }).click();
  await expect(admin.getByRole('cell', { name: 'done: viewer to editor' })).toBeVisible();
  await context.close();
});

test('a password is set, sessions end one by one or all', async ({ admin, browser, server, watch }) => {
  watch.allow(/status of (401|422)/);
  await addUser(admin, 'ben', 'editor');
  const contexts = [await signedIn(browser, server, 'ben'), await signedIn(browser, server, 'ben')];
  await admin.goto('/access/users?user=ben');
  const dialog = userDialog(admin, 'ben');
  const end = dialog.getByRole('button', {
    name: /^End the session of Chrome \d+ on Linux at 127\.0\.0\.1$/,
  });
  await expect(end).toHaveCount(2);
  await end.first().click();
  await expect(end).toHaveCount(1);
  await dialog.getByRole('button', { name: 'Sign out everywhere' }).click();
  await expect(dialog.getByText('Nobody is signed in.')).toBeVisible();
  await expect(userRow(admin, 'ben')).toContainText('0');
  await dialog.getByLabel('New password', { exact: true }).fill('short');
  await dialog.getByRole('button', { name: 'Set password' }).click();
  await expect(dialog.getByLabel('New password', { exact: true })).toHaveAttribute('aria-invalid', 'true');
  await dialog.getByLabel('New password', { exact: true }).fill(NEW_PASSWORD);
  await dialog.getByRole('button', { name: 'Set password' }).click();
  await expect(dialog.getByText('ben has a new password')).toBeVisible();
  await expect(dialog.getByLabel('New password', { exact: true })).toHaveValue('');
  expect(await trySignIn(admin, 'ben', PASSWORD)).toBe(401);
  expect(await trySignIn(admin, 'ben', NEW_PASSWORD)).toBe(200);
  for (const context of contexts) await context.close();
});

test('who was changed or deleted meanwhile is read anew, and what was typed is kept', async ({
  admin,
  other,
  watch,
}) => {
  watch.allow(/status of (404|412)/);
  await addUser(admin, 'ben', 'viewer');
  await admin.goto('/access/users?user=ben');
  const dialog = userDialog(admin, 'ben');
  await dialog.getByLabel('New password', { exact: true }).fill(NEW_PASSWORD);
  await dialog.getByLabel('Role').selectOption('admin');

  await other.goto('/access/users?user=ben');
  const elsewhere = userDialog(other, 'ben');
  await elsewhere.getByLabel('Role').selectOption('operator');
  await elsewhere.getByRole('button', { name: 'Change role' }).click();
  await expect(elsewhere.getByText('ben is operator now')).toBeVisible();

  await dialog.getByRole('button', { name: 'Change role' }).click();
  await expect(dialog.getByRole('alert')).toContainText('ben was changed meanwhile');
  await expect(dialog.getByLabel('Role')).toHaveValue('admin');
  await expect(dialog.getByLabel('New password', { exact: true })).toHaveValue(NEW_PASSWORD);
  await dialog.getByRole('button', { name: 'Change role' }).click();
  await expect(dialog.getByText('ben is admin now')).toBeVisible();

  await other.reload();
  await elsewhere.getByRole('button', { name: 'Delete ben…' }).click();
  const ask = other.getByRole('dialog', { name: 'Delete ben?' });
  await expect(ask.getByRole('button', { name: 'Cancel' })).toBeFocused();
  await expect(ask).toContainText('Last seen: never');
  await ask.getByRole('button', { name: 'Delete ben' }).click();
  await expect(elsewhere).toHaveCount(0);
  await expect(userRow(other, 'admin')).toBeVisible();
  await expect(userRow(other, 'ben')).toHaveCount(0);

  await dialog.getByRole('button', { name: 'Set password' }).click();
  await expect(dialog.getByText('ben is no user any more.')).toBeVisible();
});

readOnly(
  'an administrator is not offered what the server would refuse them for their own account',
  async ({ admin }) => {
    await admin.goto('/access/users?user=admin');
    const dialog = userDialog(admin, 'admin');
    await expect(dialog.getByText('This is your own account')).toBeVisible();
    await expect(dialog.getByText('this one')).toBeVisible();
    await expect(dialog.getByRole('button', { name: /^Delete|^Change role/ })).toHaveCount(0);
    await dialog.getByRole('link', { name: 'My account' }).click();
    await expect(admin.getByRole('heading', { level: 1, name: 'My account' })).toBeVisible();
  },
);

test('who comes by the provider has role and password from there', async ({ admin }) => {
  await addUser(admin, 'ben', 'editor');
  await admin.route('**/api/v1/users/ben', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...(await answer.json()), signs_in: 'provider' } });
  });
  await admin.goto('/access/users?user=ben');
  const dialog = userDialog(admin, 'ben');
  await expect(dialog.getByText('Role and password come from the sign-in provider.')).toBeVisible();
  await expect(dialog.getByRole('combobox')).toHaveCount(0);
  await expect(dialog.getByRole('button', { name: 'Delete ben…' })).toBeVisible();
});

test('what the server refuses stays in the dialog, in its words', async ({ admin, watch }) => {
  watch.allow(/status of 409/);
  await addUser(admin, 'ben', 'admin');
  await admin.route('**/api/v1/users/ben', (route) =>
    route.request().method() === 'DELETE'
      ? route.fulfill({
          status: 409,
          contentType: 'application/problem+json',
          json: {
            code: 'last_of_its_kind',
            title: 'x',
            status: 409,
            detail: 'The administrator `ben` is the last one.',
          },
        })
      : route.fallback(),
  );
  await admin.goto('/access/users?user=ben');
  const dialog = userDialog(admin, 'ben');
  await dialog.getByRole('button', { name: 'Delete ben…' }).click();
  await admin
    .getByRole('dialog', { name: 'Delete ben?' })
    .getByRole('button', { name: 'Delete ben' })
    .click();
  await expect(dialog.getByRole('alert')).toContainText('The administrator `ben` is the last one.');
});

test('a token is made, its secret is shown once, and it works', async ({ admin, watch }) => {
  watch.allow(/status of 422/);
  await admin.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await admin.goto('/access/tokens');
  await expect(admin.getByText('There is none yet.')).toBeVisible();
  await admin.keyboard.press('n');
  const dialog = admin.getByRole('dialog', { name: 'New token' });
  await expect(dialog.getByLabel('Name')).toBeFocused();
  await admin.keyboard.type('ci/');
  await dialog.getByLabel('Role').selectOption('editor');
  await dialog.getByRole('radio', { name: 'only' }).check();
  await dialog.getByRole('button', { name: 'Make token' }).click();
  await expect(dialog.getByText('Choose one or more')).toBeVisible();
  await dialog.getByRole('checkbox', { name: 'tiers' }).check();
  await dialog.getByRole('checkbox', { name: 'rules' }).check();
  await dialog.getByRole('button', { name: 'Make token' }).click();
  await expect(dialog.getByLabel('Name')).toHaveAttribute('aria-invalid', 'true');
  await dialog.getByLabel('Name').fill('ci');
  await dialog.getByRole('button', { name: 'Make token' }).click();

  const shown = admin.getByRole('dialog', { name: 'Token ci' });
  const secret = await shown.getByLabel('Secret').inputValue();
  expect(secret).toMatch(/^tg_/);
  await admin.keyboard.press('Escape');
  await admin.keyboard.press('Escape');
  await expect(shown).toBeVisible();
  await shown.getByRole('button', { name: 'Copy' }).click();
  await expect(shown.getByText('Copied', { exact: true })).toBeVisible();
  expect(await admin.evaluate(() => navigator.clipboard.readText())).toBe(secret);
  await shown.getByRole('button', { name: 'I have copied it' }).click();
  await expect(shown).toHaveCount(0);
  await expect(tokenRow(admin, 'ci')).toContainText('editor: tiers, rules');
  await expect(tokenRow(admin, 'ci')).toContainText(/in (89|90) d/);
  await expect(tokenRow(admin, 'ci')).toContainText('never');
  expect(await admin.content()).not.toContain(secret);

  const asked = await fetch(new URL('/api/v1/me', admin.url()), {
    headers: { authorization: `Bearer ${secret}` },
  });
  expect(await asked.json()).toMatchObject({ name: 'token:ci', role: 'editor', kinds: ['tier', 'rule'] });
  // The server notes the use after its answer.
  const noted = async () =>
    (await (await admin.context().request.get('/api/v1/tokens')).json()).items[0].last_used_address;
  await expect.poll(noted).toBe('127.0.0.1');
  await admin.reload();
  await expect(tokenRow(admin, 'ci')).toContainText('just now, 127.0.0.1');
});

test('ends are chosen, and no end is named', async ({ admin }) => {
  await admin.goto('/access/tokens');
  for (const [name, role, end, day, words] of [
    [
      'week',
      'viewer',
      'on a day…',
      new Date(Date.now() + 7 * 86_400_000).toISOString().slice(0, 10),
      /in 7 d/,
    ],
    ['for-ever', 'node', 'no end', null, /node.*no end/],
  ] as const) {
    await admin.getByRole('button', { name: 'New token' }).first().click();
    const dialog = admin.getByRole('dialog', { name: 'New token' });
    await dialog.getByLabel('Name').fill(name);
    await dialog.getByLabel('Role').selectOption(role);
    await dialog.getByLabel('End', { exact: true }).selectOption(end);
    if (day !== null) {
      await dialog.getByRole('button', { name: 'Make token' }).click();
      await expect(dialog.getByText('Choose a day')).toBeVisible();
      await dialog.getByLabel('Last day').fill(day);
    }
    await dialog.getByRole('button', { name: 'Make token' }).click();
    await admin.getByRole('button', { name: 'I have copied it' }).click();
    await expect(tokenRow(admin, name)).toContainText(words);
  }
  await expect(tokenRow(admin, 'week')).toContainText('!');
  await expect(tokenRow(admin, 'for-ever')).not.toContainText('!');
});

test('a token is replaced beside the old one, and revoked', async ({ admin, watch }) => {
  watch.allow(/status of 404/);
  await call(admin, 'POST', '/tokens', { name: 'ci', role: 'viewer' });
  await admin.goto('/access/tokens');
  await admin.getByRole('button', { name: 'Replace ci…' }).click();
  const ask = admin.getByRole('dialog', { name: 'Replace ci?' });
  await expect(ask).toContainText('Last used: never');
  await ask.getByRole('button', { name: 'Replace ci' }).click();
  await expect(admin.getByRole('dialog', { name: 'Token ci' }).getByLabel('Secret')).toHaveValue(/^tg_/);
  await admin.getByRole('button', { name: 'I have copied it' }).click();
  await expect(tokenRow(admin, 'ci')).toHaveCount(2);
  const old = tokenRow(admin, 'ci').filter({ hasText: 'replaced' });
  await expect(old).toContainText(/in 2[34] h/);
  await expect(old).not.toContainText('!');
  await expect(old.getByRole('button', { name: 'Replace ci…' })).toHaveCount(0);
  await old.getByRole('button', { name: 'Revoke ci…' }).click();
  const revoke = admin.getByRole('dialog', { name: 'Revoke ci?' });
  await expect(revoke.getByRole('button', { name: 'Cancel' })).toBeFocused();
  await revoke.getByRole('button', { name: 'Revoke ci' }).click();
  await expect(revoke).toHaveCount(0);
  await expect(tokenRow(admin, 'ci')).toHaveCount(1);

  const { items } = (await (await admin.context().request.get('/api/v1/tokens')).json()) as {
    items: { id: string }[];
  };
  await call(admin, 'DELETE', `/tokens/${items[0]?.id}`);
  await admin.getByRole('button', { name: 'Revoke ci…' }).click();
  await revoke.getByRole('button', { name: 'Revoke ci' }).click();
  await expect(revoke.getByRole('alert')).toContainText('There is no token');
});

test('an answer that is lost says that the token may be there', async ({ admin, watch }) => {
  watch.allow(/ERR_FAILED/);
  await admin.goto('/access/tokens');
  await expect(admin.getByText('There is none yet.')).toBeVisible();
  await admin.route('**/api/v1/tokens', async (route) => {
    if (route.request().method() !== 'POST') return route.fallback();
    await route.fetch();
    await route.abort();
  });
  await admin.keyboard.press('n');
  const dialog = admin.getByRole('dialog', { name: 'New token' });
  await dialog.getByLabel('Name').fill('ci');
  await dialog.getByRole('button', { name: 'Make token' }).click();
  await expect(dialog.getByRole('alert')).toContainText('The token may have been made');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await expect(tokenRow(admin, 'ci')).toBeVisible();
});

test('my account: another password ends the other sessions', async ({ admin, other, watch }) => {
  watch.allow(/status of (401|422)/);
  await admin.goto('/access/me');
  await other.goto('/access/me');
  await expect(admin.getByText('Signed in as admin; your role is admin.')).toBeVisible();
  await expect(admin.getByText('You sign in by name and password.')).toBeVisible();
  await expect(admin.getByText('this one')).toHaveCount(1);
  const change = admin.getByRole('button', { name: 'Change password' });
  await admin.getByLabel('Present password').fill('not this one at all');
  await admin.getByLabel('New password', { exact: true }).fill(NEW_PASSWORD);
  await change.click();
  await expect(admin.getByLabel('Present password')).toHaveAttribute('aria-invalid', 'true');
  await expect(admin.getByText('this is not your password')).toBeVisible();
  await expect(admin.getByLabel('New password', { exact: true })).toHaveValue(NEW_PASSWORD);
  await admin.getByLabel('Present password').fill(PASSWORD);
  await change.click();
  await expect(admin.getByText('Your password is changed.')).toBeVisible();
  await expect(other.getByRole('dialog', { name: 'Sign in again' })).toBeVisible();
  await expect(admin.getByRole('button', { name: 'Sign out everywhere else' })).toHaveCount(0);

  const again = other.getByRole('dialog', { name: 'Sign in again' });
  await again.getByLabel('Password', { exact: true }).fill(NEW_PASSWORD);
  await again.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect(again).toHaveCount(0);
  await other.getByRole('button', { name: 'Sign out everywhere else' }).click();
  await expect(admin.getByRole('dialog', { name: 'Sign in again' })).toBeVisible();
  await expect(other.getByText('this one')).toBeVisible();
});

test('an authenticator app is set up, asked for at the sign-in, and removed by the password', async ({
  admin,
  browser,
  server,
  watch,
}) => {
  watch.allow(/status of (401|404|422)/);
  await admin.goto('/access/me');
  const panel = admin
    .locator('section')
    .filter({ has: admin.getByRole('heading', { name: 'Second factor' }) });
  const password = panel.getByLabel('Your password', { exact: true });
  const setUp = panel.getByRole('button', { name: 'Set up an app' });
  await expect(panel.getByText('Your password alone signs you in. With')).toBeVisible();
  await password.fill('not this one at all');
  await setUp.click();
  await expect(password).toHaveAttribute('aria-invalid', 'true');
  await password.fill(PASSWORD);
  await setUp.click();
  await expect(panel.getByRole('img', { name: 'QR code of the secret' })).toBeVisible();
  const secret = await panel.getByLabel('Secret', { exact: true }).inputValue();
  const code = panel.getByLabel('Code', { exact: true });
  await code.fill('12345');
  await panel.getByRole('button', { name: 'Confirm' }).click();
  await expect(code).toHaveAttribute('aria-invalid', 'true');
  await code.fill(totp(secret));
  await panel.getByRole('button', { name: 'Confirm' }).click();
  const recovery = panel.getByRole('list', { name: 'Recovery codes' }).getByRole('listitem');
  await expect(recovery).toHaveCount(10);
  const [first = ''] = await recovery.allTextContents();
  await panel.getByRole('button', { name: 'I have kept them' }).click();
  await expect(panel.getByText('10 recovery codes are left.')).toBeVisible();
  expect(await admin.content()).not.toContain(first);

  const context = await browser.newContext({ baseURL: server.dashboard });
  const page = await context.newPage();
  const signIn = page.getByRole('button', { name: 'Sign in', exact: true });
  const asked = page.getByLabel('Code', { exact: true });
  const inside = page.getByRole('heading', { level: 1, name: 'Overview' });
  await page.goto('/login');
  await page.getByLabel('Name').fill('admin');
  await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await signIn.click();
  await expect(asked).toBeFocused();
  await asked.fill('12345');
  await signIn.click();
  await expect(page.getByRole('alert')).toContainText('Wrong code');
  await asked.fill(totp(secret, 1));
  await signIn.click();
  await expect(inside).toBeVisible();

  await context.clearCookies();
  await page.goto('/login');
  await page.getByLabel('Name').fill('admin');
  await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await page.keyboard.press('Enter');
  await asked.fill(first);
  await page.keyboard.press('Enter');
  await expect(inside).toBeVisible();
  await context.close();

  await admin.reload();
  await expect(panel.getByText('9 recovery codes are left.')).toBeVisible();
  await password.fill(PASSWORD);
  await panel.getByRole('button', { name: 'Remove second factor' }).click();
  await expect(panel.getByText('Your password alone signs you in now.')).toBeVisible();
  await expect(setUp).toBeVisible();
  expect(await trySignIn(admin, 'admin', PASSWORD)).toBe(200);
});

test('an administrator removes the second factor of a user who has lost it', async ({
  admin,
  browser,
  server,
}) => {
  await addUser(admin, 'ben', 'viewer');
  const context = await signedIn(browser, server, 'ben');
  const ben = await context.newPage();
  const { secret } = await call<{ secret: string }>(ben, 'POST', '/me/second-factor', { password: PASSWORD });
  await call(ben, 'PUT', '/me/second-factor', { code: totp(secret) });
  await context.close();
  await admin.goto('/access/users');
  await expect(userRow(admin, 'ben')).toContainText('password and code');
  await admin.getByRole('link', { name: 'ben' }).click();
  const dialog = userDialog(admin, 'ben');
  expect(await trySignIn(admin, 'ben', PASSWORD)).toBe(401);
  await dialog.getByRole('button', { name: 'Remove second factor' }).click();
  await expect(dialog.getByText('ben signs in by the password alone now.')).toBeVisible();
  await expect(dialog.getByRole('button', { name: 'Remove second factor' })).toHaveCount(0);
  await expect(userRow(admin, 'ben')).not.toContainText('password and code');
  expect(await trySignIn(admin, 'ben', PASSWORD)).toBe(200);
});

test('after too many tries the wait is counted down, and is that of the name', async ({
  admin,
  browser,
  server,
  watch,
}) => {
  watch.allow(/status of (401|404|429)/);
  await addUser(admin, 'ben', 'viewer');
  const context = await browser.newContext({ baseURL: server.dashboard });
  const page = await context.newPage();
  await page.goto('/login');
  await page.getByLabel('Name').fill('ben');
  await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
  // They are counted before they are looked at: all that there are, and more.
  const tries = Array.from({ length: 12 }, () => trySignIn(page, 'ben', 'not this one at all'));
  const refused = tries.map(async (one) => expect(await one).toBe(429));
  await Promise.any(refused);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  const wait = page.getByText(/^Try again in \d+ s\.$/);
  await expect(wait).toBeVisible();
  const first = (await wait.textContent()) ?? '';
  await expect(page.getByText(first, { exact: true })).toHaveCount(0);
  await page.getByLabel('Name').fill('vera');
  await expect(wait).toHaveCount(0);
  await page.getByLabel('Name').fill('ben');
  await Promise.all(tries);
  await expect(async () => {
    await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    await expect(page.getByRole('heading', { level: 1, name: 'Overview' })).toBeVisible({ timeout: 10_000 });
  }).toPass({ intervals: [7_000] });
  await context.close();
});
