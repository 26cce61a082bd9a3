/** Five hundred rules and as many tiers: drawn, filtered, sorted and scrolled. How long each takes is told. */
import type { Page } from '@playwright/test';
import { expect, test } from './fixtures.ts';
import { drawnMs, scrollMs } from './frames.ts';
import { call } from './people.ts';

const MANY = 500;
/** The numbers below 500 that have 99 in them. */
const FILTERED = 5;

const limits = [{ id: 'minute', algorithm: 'token_bucket', limit: 60, period: '1m' }];
const name = (kind: string, at: number) => `${kind}-${String(at).padStart(3, '0')}`;

async function publishMany(page: Page): Promise<void> {
  const numbers = Array.from({ length: MANY }, (_, at) => at);
  const tiers = numbers.map((at) => ({ id: name('tier', at), limits }));
  const rules = numbers.map((at) => ({
    id: name('rule', at),
    endpoint: `/v1/part-${at}`,
    per: ['user'],
    limits,
  }));
  const create = (kind: string, value: { id: string }) => ({
    op: 'create',
    kind,
    domain: 'default',
    id: value.id,
    value,
  });
  const changes = [
    ...tiers.map((value) => create('tier', value)),
    ...rules.map((value) => create('rule', value)),
  ];
  await call(page, 'POST', '/policy/changes', { base_version: 1, message: 'many', changes, if_match: {} });
}

test('500 rules and 500 tiers', { tag: '@all' }, async ({ admin, server }, info) => {
  const told: string[] = [];
  const tell = (what: string, ms: number) => told.push(`${what}: ${Math.round(ms)} ms`);
  await publishMany(admin);
  for (const [path, kind] of [
    ['/rules', 'rule'],
    ['/tiers', 'tier'],
  ] as const) {
    await admin.goto('/history');
    await expect(admin.getByText('many')).toBeVisible();
    const link = admin.getByRole('link', { name: path === '/rules' ? 'Rules' : 'Tiers', exact: true });
    const last = admin.getByRole('link', { name: name(kind, MANY - 1), exact: true });
    // Its script is read by then.
    await link.click();
    await expect(last).toBeVisible();
    await admin.goBack();
    tell(`${path} drawn after the answer`, await drawnMs(admin, () => link.click(), `/api/v1${path}?`));
    const filter = admin.getByLabel('Filter');
    const rows = admin.getByRole('link', { name: new RegExp(`^${kind}-`) });
    tell(`${path} filtered`, await drawnMs(admin, () => filter.fill('99')));
    await expect(rows).toHaveCount(FILTERED);
    tell(`${path} all again`, await drawnMs(admin, () => filter.fill('')));
    await expect(last).toBeVisible();
    if (kind === 'tier') {
      const head = admin.getByRole('button', { name: 'Name' });
      await head.click();
      tell(`${path} sorted`, await drawnMs(admin, () => head.click()));
      await expect(rows.first()).toHaveText(name(kind, MANY - 1));
    }
    const flow = setInterval(() => void server.check('ada').catch(() => undefined), 20);
    tell(`${path} the longest frame while it was scrolled`, await scrollMs(admin));
    clearInterval(flow);
  }
  process.stdout.write(`${told.join('\n')}\n`);
  info.annotations.push(...told.map((description) => ({ type: 'measured', description })));
});
