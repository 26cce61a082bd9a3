/** What every page has. */

export const states = {
  loading: 'Loading…',
  slow: 'Still loading',
  waited: (seconds: number) => `${seconds} s`,
  stop: 'Stop',
  stopped: 'Stopped.',
  retry: 'Try again',
  more: 'Show more',
  failed: (what: string) => `${what} could not be loaded.`,
  page: 'The page',
  pageFailed:
    'This page could not be read. The server is away, or has been renewed since this tab was opened.',
  unreachable: 'The server does not answer.',
  rollout: 'To the rollout',
  requestId: (id: string) => `Request ${id}`,
  oldData: (time: string) => `What follows is from ${time}.`,
  noMatch: (what: string, filter: string) => `No ${what} matches “${filter}”`,
  clearFilter: 'Clear filter',
  stale: (seconds: number) => `${seconds} s old`,
  staleSince: (time: string) => `last figures ${time}`,
  missingPage: 'There is no such page',
  missingPageHelp: (path: string) => `Nothing lives at ${path}.`,
  toOverview: 'Go to the Overview',
  everyone: 'everyone',
  rest: (row: string) => `More of ${row}`,
  rowsWait: (count: number) => `${count} ${count === 1 ? 'row' : 'rows'} would move`,
  goneTier: (id: string) => `There is no tier ${id}`,
  goneRule: (id: string) => `There is no rule ${id}`,
  goneHelp: 'It may have been deleted, or never existed. History tells which version changed what.',
};

/** The guide (its page below /docs/) and the part of the page of REST calls about a subject. */
export const docs = {
  clients: {
    page: 'changing-the-policy',
    guide: 'Guide to changing the policy',
    calls: 'REST calls for clients',
  },
  explanations: { page: 'dashboard', guide: 'Guide to the dashboard', calls: 'REST calls for explanations' },
  nodes: { page: 'fleet', guide: 'Guide to fleets', calls: 'REST calls for nodes' },
  rules: { page: 'policy', guide: 'Guide to policies', calls: 'REST calls for rules' },
  tokens: { page: 'people', guide: 'Guide to users and tokens', calls: 'REST calls for tokens' },
  'what-if': { page: 'what-if', guide: 'Guide to what-if runs', calls: 'REST calls for runs' },
};

/** What the nodes that were asked did not tell. */
export const untold = {
  silent: (nodes: string) => `${nodes} did not answer: of these nothing is known.`,
  failed: (node: string, why: string) => `${node}: ${why}`,
};

export const auditLine = 'Line of the audit log';

export const filter = { label: 'Filter', hint: 'Filter  /' };

export const time = { ago: (age: string) => `${age} ago`, now: 'just now' };

export const dialog = { close: 'Close', cancel: 'Cancel' };

export const copy = { copy: 'Copy', copied: 'Copied', failed: 'Select it and copy it by hand.' };
