/** History, audit log and access, light and dark: no accessibility violation, nothing that scrolls sideways, pictures. */
import { expect, test } from './fixtures.ts';
import { look } from './look.ts';
import { addUser, call, publishPro, signedIn } from './people.ts';

for (const theme of ['light', 'dark'] as const) {
  test(`looks of the record, ${theme}`, async ({ admin, watch }) => {
    test.setTimeout(240_000);
    watch.allow(/status of (404|412)/);
    await admin.emulateMedia({ colorScheme: theme });
    await publishPro(admin, 20_000, 'twice as much for pro, because the export job asks for it every night');
    await call(admin, 'POST', '/rules?message=a%20rule%20for%20exports', {
      id: 'export',
      endpoint: '/export',
      per: 'user',
      limits: [{ id: 'hour', algorithm: 'token_bucket', limit: 10, period: '1h' }],
    });
    await publishPro(admin, 30_000, 'thrice');
    await admin.goto('/history');
    await admin.getByRole('checkbox', { name: 'Compare v2' }).check();
    await admin.getByRole('checkbox', { name: 'Compare v4' }).check();
    await expect(admin.getByRole('cell', { name: '1 of 1' }).or(admin.getByText('newest'))).not.toHaveCount(
      0,
    );
    await look(admin, 'record-history', theme);
    await admin.getByLabel('Filter').fill('nobody wrote this');
    await expect(admin.getByText('No version matches')).toBeVisible();
    await look(admin, 'record-history-none', theme);
    await admin.goto('/history/2..4');
    await expect(admin.getByRole('table', { name: 'tier pro' })).toBeVisible();
    await look(admin, 'record-comparison', theme);
    await admin.getByRole('button', { name: 'Text', exact: true }).click();
    await look(admin, 'record-comparison-text', theme);
    await admin.goto('/history/2');
    await expect(admin.getByRole('table', { name: 'tier pro' })).toBeVisible();
    await admin.getByText('Show as JSON').click();
    await look(admin, 'record-version', theme);
    await admin.getByRole('button', { name: 'Roll back…' }).click();
    const dialog = admin.getByRole('dialog', { name: 'Roll back, v2' });
    await expect(dialog.getByRole('table', { name: 'tier pro' })).toBeVisible();
    await look(admin, 'record-roll-back', theme);
    await dialog.getByRole('radio', { name: /^Only undo/ }).check();
    await expect(dialog.getByRole('button', { name: 'Publish v5' })).toBeEnabled();
    await dialog.getByRole('button', { name: 'Publish v5' }).click();
    await expect(dialog.getByText('Choose for each field first')).toBeVisible();
    await look(admin, 'record-roll-back-conflict', theme);
    await admin.goto('/history/99');
    await expect(admin.getByText('There is no version v99')).toBeVisible();
    await look(admin, 'record-version-gone', theme);
    await admin.goto('/history/3');
    await admin.getByRole('button', { name: 'Roll back…' }).click();
    const back = admin.getByRole('dialog', { name: 'Roll back, v3' });
    await back.getByRole('button', { name: 'Publish v5' }).click();
    await expect(back.getByText('v5 in force')).toBeVisible();
    await look(admin, 'record-rolled-back', theme);
    await admin.goto('/history/audit');
    await expect(admin.getByRole('cell', { name: 'policy.publish' }).first()).toBeVisible();
    await look(admin, 'record-audit', theme);
    await admin.getByLabel('Who').fill('nobody');
    await expect(admin.getByText('No line is like this.')).toBeVisible();
    await look(admin, 'record-audit-none', theme);
  });

  test(`looks of access, ${theme}`, async ({ admin, browser, server, watch }) => {
    test.setTimeout(240_000);
    watch.allow(/status of (412|422|429|401)/);
    await admin.emulateMedia({ colorScheme: theme });
    await addUser(admin, 'ben', 'editor');
    await addUser(admin, 'vera', 'viewer');
    const ben = await (await signedIn(browser, server, 'ben')).newPage();
    const vera = await (await signedIn(browser, server, 'vera')).newPage();
    await admin.goto('/access/users');
    await expect(admin.getByRole('link', { name: 'ben' })).toBeVisible();
    await look(admin, 'access-users', theme);
    await admin.getByRole('button', { name: 'New user' }).click();
    const add = admin.getByRole('dialog', { name: 'New user' });
    await add.getByLabel('Name').fill('ben');
    await add.getByLabel('Password', { exact: true }).fill('a few words of his');
    await add.getByRole('button', { name: 'Add user' }).click();
    await expect(add.getByText('A user has this name')).toBeVisible();
    await look(admin, 'access-new-user', theme);
    await add.getByRole('button', { name: 'Cancel' }).click();
    await admin.getByRole('link', { name: 'ben' }).click();
    const user = admin.getByRole('dialog', { name: 'User ben' });
    await expect(user.getByRole('cell', { name: '127.0.0.1', exact: true })).toBeVisible();
    await look(admin, 'access-user', theme);
    await user.getByRole('button', { name: 'Delete ben…' }).click();
    await expect(admin.getByRole('dialog', { name: 'Delete ben?' })).toBeVisible();
    await look(admin, 'access-delete', theme);
    await admin.goto('/access/roles');
    await expect(admin.getByText('yours')).toBeVisible();
    await look(admin, 'access-roles', theme);
    await admin.goto('/access/tokens');
    await expect(admin.getByText('There is none yet.')).toBeVisible();
    await look(admin, 'access-tokens-empty', theme);
    await call(admin, 'POST', '/tokens', { name: 'nodes of eu-west', scope: 'node', ends_at: null });
    await call(admin, 'POST', '/tokens', { name: 'ci', role: 'editor', kinds: ['tier', 'rule', 'client'] });
    const soon = new Date(Date.now() + 9 * 86_400_000 + 3_600_000).toISOString();
    await call(admin, 'POST', '/tokens', { name: 'dashboards', role: 'viewer', ends_at: soon });
    await admin.reload();
    await admin.getByRole('button', { name: 'New token' }).click();
    const token = admin.getByRole('dialog', { name: 'New token' });
    await token.getByLabel('Role').selectOption('editor');
    await token.getByRole('radio', { name: 'only' }).check();
    await token.getByLabel('Name').fill('ci');
    await token.getByRole('checkbox', { name: 'tiers' }).check();
    await token.getByLabel('End', { exact: true }).selectOption('no end');
    await token.getByRole('button', { name: 'Make token' }).click();
    await expect(token.getByText('another token has this name')).toBeVisible();
    await look(admin, 'access-new-token', theme);
    await token.getByRole('button', { name: 'Cancel' }).click();
    await admin.getByRole('button', { name: 'Replace ci…' }).click();
    await look(admin, 'access-replace', theme);
    await admin.getByRole('button', { name: 'Replace ci', exact: true }).click();
    await expect(admin.getByRole('dialog', { name: 'Token ci' })).toBeVisible();
    await look(admin, 'access-secret', theme);
    await admin.getByRole('button', { name: 'I have copied it' }).click();
    await look(admin, 'access-tokens', theme);
    await admin.goto('/access/me');
    await expect(admin.getByText('this one')).toBeVisible();
    await look(admin, 'access-me', theme);
    await vera.emulateMedia({ colorScheme: theme });
    await vera.goto('/access/users');
    await expect(vera.getByText('your role is viewer')).toBeVisible();
    await look(vera, 'access-not-allowed', theme);
    await vera.context().close();
    await ben.context().close();
  });
}
