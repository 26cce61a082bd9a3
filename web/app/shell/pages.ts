/** The pages and dialogs, each read from the server when it is first needed. */
import type { Component } from 'svelte';
import type { PageName } from '../router.ts';
import type { Overlay } from './overlay.svelte.ts';

/** One that has no use for the id overlooks it. */
export type Page = Component<{ id: string }>;

type Read = () => Promise<{ default: unknown }>;

const PAGES: Record<PageName, Read> = {
  overview: () => import('../pages/Overview.svelte'),
  inspector: () => import('../pages/Inspector.svelte'),
  nodes: () => import('../pages/Nodes.svelte'),
  node: () => import('../pages/Node.svelte'),
  tiers: () => import('../pages/Tiers.svelte'),
  tier: () => import('../pages/Tier.svelte'),
  rules: () => import('../pages/Rules.svelte'),
  rule: () => import('../pages/Rule.svelte'),
  clients: () => import('../pages/Clients.svelte'),
  client: () => import('../pages/Client.svelte'),
  domain: () => import('../pages/Domain.svelte'),
  simulator: () => import('../pages/Simulator.svelte'),
  run: () => import('../pages/Run.svelte'),
  history: () => import('../pages/History.svelte'),
  audit: () => import('../pages/Audit.svelte'),
  comparison: () => import('../pages/Comparison.svelte'),
  version: () => import('../pages/Version.svelte'),
  access: () => import('../pages/Access.svelte'),
  login: () => import('../pages/Login.svelte'),
  'signed-in': () => import('../pages/SignedIn.svelte'),
  setup: () => import('../pages/Setup.svelte'),
  missing: () => import('../pages/Missing.svelte'),
};

const OVERLAYS: Record<Overlay | 'draft' | 'signed-out', Read> = {
  draft: () => import('../publish/DraftDialog.svelte'),
  find: () => import('../find/Find.svelte'),
  keys: () => import('./KeyList.svelte'),
  publish: () => import('../publish/PublishPanel.svelte'),
  'roll-back': () => import('../history/RollBackPanel.svelte'),
  'sign-out': () => import('./SignOut.svelte'),
  'signed-out': () => import('./SignedOut.svelte'),
};

export async function readPage(name: PageName): Promise<Page> {
  return (await PAGES[name]()).default as Page;
}

export async function readOverlay(name: keyof typeof OVERLAYS): Promise<Page> {
  return (await OVERLAYS[name]()).default as Page;
}

/** What may be wanted soon. Where it cannot be read now, it is asked for again, and told, once it is opened. */
export function readAhead(...names: (keyof typeof OVERLAYS)[]): void {
  for (const name of names) void OVERLAYS[name]().catch(() => undefined);
}
