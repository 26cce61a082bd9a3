/** Five hundred rules and as many tiers: drawn soon after the answer, filtered, sorted and scrolled. */
import type { Page } from '@playwright/test';
import { expect, test } from './fixtures.ts';
import { drawnMs, scrollMs, shared } from './frames.ts';
import { call } from './people.ts';

const MANY = 500;
/** Meant for an idle machine; guards, times `shared()`, against work for each of all rows. */
const DRAWN_MS = 200;
/** Guards against a second in which the list does not follow. */
const FRAME_MS = 1_000;

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

test('500 rules and 500 tiers', async ({ admin, server }, info) => {
  test.setTimeout(180_000);
  const told: string[] = [];
  const hold = (what: string, ms: number, most: number) => {
    told.push(`${what}: ${Math.round(ms)} ms`);
    expect.soft(ms, what).toBeLessThan(most * shared());
  };
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
    hold(
      `${path} drawn after the answer`,
      await drawnMs(admin, () => link.click(), `/api/v1${path}?`),
      DRAWN_MS,
    );
    const filter = admin.getByLabel('Filter');
    hold(`${path} filtered`, await drawnMs(admin, () => filter.fill('99')), DRAWN_MS);
    hold(`${path} all again`, await drawnMs(admin, () => filter.fill('')), DRAWN_MS);
    await expect(last).toBeVisible();
    if (kind === 'tier') {
      const head = admin.getByRole('button', { name: 'Name' });
      await head.click();
      hold(`${path} sorted`, await drawnMs(admin, () => head.click()), DRAWN_MS);
    }
    const flow = setInterval(() => void server.check('ada').catch(() => undefined), 20);
    hold(`${path} the longest frame while it was scrolled`, await scrollMs(admin), FRAME_MS);
    clearInterval(flow);
  }
  process.stdout.write(`${told.join('\n')}\n`);
  info.annotations.push(...told.map((description) => ({ type: 'measured', description })));
});
