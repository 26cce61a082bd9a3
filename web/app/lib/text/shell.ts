/** The frame: bar, rail, menus. */

export const nav = {
  label: 'Pages',
  menu: 'Menu',
  skip: 'Skip to the content',
  groups: { live: 'Live', policy: 'Policy', record: 'Record' },
  overview: 'Overview',
  inspector: 'Inspector',
  nodes: 'Nodes',
  tiers: 'Tiers',
  rules: 'Rules',
  clients: 'Clients',
  simulator: 'Simulator',
  history: 'History',
  access: 'Access',
};

export const bar = {
  policy: (version: number) => `Policy v${version}`,
  everywhere: (version: number, all: number) =>
    `Policy v${version} on ${all} of ${all} ${all === 1 ? 'node' : 'nodes'}`,
  publishing: (version: number, on: number, all: number) => `Policy v${version} on ${on} of ${all}…`,
  staged: (version: number, on: number, all: number) =>
    `Policy v${version} on ${on} of ${all}, waiting on some nodes first`,
  partly: (version: number, on: number, all: number, trouble: string) =>
    `! Policy v${version} on ${on} of ${all}, ${trouble}`,
  refused: (node: string) => `${node} refused it`,
  behindFor: (node: string, seconds: number) =>
    `${node} behind ${seconds < 120 ? `${seconds} s` : `${Math.floor(seconds / 60)} min`}`,
  severalBehind: (count: number) => `${count} nodes behind`,
  announced: (version: number, all: number) => `v${version} is on all ${all} nodes`,
  find: 'Find…',
  findKey: 'Ctrl K',
  changes: (count: number) => `${count} ${count === 1 ? 'change' : 'changes'}`,
  domain: 'Domain',
  user: (name: string) => `${name} ▾`,
  userLabel: (name: string) => `Menu of ${name}`,
};

export const menu = {
  role: (role: string) => `Role: ${role}`,
  theme: 'Theme',
  themes: { system: 'System', light: 'Light', dark: 'Dark' },
  times: 'Times',
  zones: { local: 'Local', utc: 'UTC' },
  rows: 'Rows',
  densities: { compact: 'Compact', comfortable: 'Comfortable' },
  shortcuts: 'Single-letter shortcuts',
  keys: 'List of keys',
  account: 'My account',
  guides: 'Guides',
  calls: 'REST calls',
  signOut: 'Sign out',
};

export const connection = {
  live: 'Live',
  connecting: 'Connecting…',
  reconnecting: 'Reconnecting…',
  paused: 'Paused',
  down: (since: string) => `Not live since ${since}`,
  signedOut: 'Signed out',
  banner: (since: string) =>
    `Not live since ${since}: the server does not answer. What you type stays; this page goes on by itself as soon as it is back.`,
  outdated: 'A new version of the dashboard is ready',
  reload: 'Reload',
};

export const signOut = {
  failed: 'You are still signed in',
  title: 'Keep your changes?',
  body: (count: number) =>
    `${count} ${count === 1 ? 'change is' : 'changes are'} not published. Kept changes wait in this browser until you sign in again.`,
  keep: 'Keep and sign out',
  drop: 'Drop and sign out',
  cancel: 'Stay signed in',
};
