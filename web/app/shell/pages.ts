/** The pages and dialogs, each read from the server when it is first needed. */
import type { Component } from 'svelte';
import type { Overlay } from '../lib/state/overlay.svelte.ts';
import type { PageName } from '../lib/state/router.ts';

/** One that has no use for the id overlooks it. */
export type Page = Component<{ id: string }>;

type Read = () => Promise<{ default: unknown }>;

const PAGES: Record<PageName, Read> = {
  overview: () => import('../routes/Overview.svelte'),
  inspector: () => import('../routes/Inspector.svelte'),
  nodes: () => import('../routes/Nodes.svelte'),
  node: () => import('../routes/Node.svelte'),
  tiers: () => import('../routes/Tiers.svelte'),
  tier: () => import('../routes/Tier.svelte'),
  rules: () => import('../routes/Rules.svelte'),
  rule: () => import('../routes/Rule.svelte'),
  clients: () => import('../routes/Clients.svelte'),
  client: () => import('../routes/Client.svelte'),
  domain: () => import('../routes/Domain.svelte'),
  simulator: () => import('../routes/Simulator.svelte'),
  run: () => import('../routes/Run.svelte'),
  history: () => import('../routes/History.svelte'),
  audit: () => import('../routes/Audit.svelte'),
  comparison: () => import('../routes/Comparison.svelte'),
  version: () => import('../routes/Version.svelte'),
  access: () => import('../routes/Access.svelte'),
  login: () => import('../routes/Login.svelte'),
  'signed-in': () => import('../routes/SignedIn.svelte'),
  setup: () => import('../routes/Setup.svelte'),
  missing: () => import('../routes/NotFound.svelte'),
};

const OVERLAYS: Record<Overlay | 'draft' | 'signed-out', Read> = {
  draft: () => import('../features/publish/DraftDialog.svelte'),
  find: () => import('../features/find/FindDialog.svelte'),
  keys: () => import('./ShortcutsDialog.svelte'),
  publish: () => import('../routes/Publish.svelte'),
  'roll-back': () => import('../features/history/RollBackPanel.svelte'),
  'sign-out': () => import('../features/signin/SignOutDialog.svelte'),
  'signed-out': () => import('../features/signin/SessionExpiredDialog.svelte'),
};

export async function loadPage(name: PageName): Promise<Page> {
  return (await PAGES[name]()).default as Page;
}

export async function loadOverlay(name: keyof typeof OVERLAYS): Promise<Page> {
  return (await OVERLAYS[name]()).default as Page;
}

/** Loads dialogs that may be opened soon. A load that fails is repeated, and reported, once the dialog is opened. */
export function prefetchOverlays(...names: (keyof typeof OVERLAYS)[]): void {
  for (const name of names) void OVERLAYS[name]().catch(() => undefined);
}
