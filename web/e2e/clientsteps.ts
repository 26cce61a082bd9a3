/** Clients for tests, and how they come in. */
import type { Page } from '@playwright/test';
import { call } from './people.ts';

/** A file of clients, chosen in the import dialog. */
export async function chooseFile(page: Page, lines: string[]): Promise<void> {
  const buffer = Buffer.from(lines.join('\n') + '\n');
  await page
    .getByLabel('File', { exact: true })
    .setInputFiles({ name: 'clients.csv', mimeType: 'text/csv', buffer });
}

export const CLIENTS = [
  'kind,value,tier,label,override,until,reason',
  'user,acme,pro,Acme GmbH,,,',
  'user,acorn,free,,,,',
  'user,scraper,free,the scraper,blocked,never,abuse',
  'user,whale,pro,,"[{""id"":""minute"",""algorithm"":""fixed_window"",""limit"":100,""period"":""1d""}]",,migration',
  'ip,10.0.0.0/8,,,unlimited,,our own',
];

/** By the call alone. */
export async function importClients(page: Page, lines: string[]): Promise<void> {
  const csv = { 'content-type': 'text/csv' };
  await call(page, 'POST', '/clients/import?message=the+first+clients', lines.join('\n') + '\n', csv);
}
