/** Clients and overrides. */

const clientsOf = (count: string, isOne: boolean) => `${count} ${isOne ? 'client' : 'clients'}`;

export const clients = {
  title: 'Clients',
  count: (count: string, isOne: boolean) => clientsOf(count, isOne),
  many: 'more than 10,000 clients',
  tier: 'Tier',
  anyTier: 'All tiers',
  tag: 'Tag',
  tagged: (tag: string) => `Clients with the tag ${tag}`,
  show: 'Show',
  shows: {
    all: 'All clients',
    with: 'With override',
    without: 'Without override',
    denied: 'Denied now',
  },
  more: 'Show more',
  new: 'New client',
  temporary: 'Temporary override',
  import: 'Import',
  export: 'Export',
  empty: 'No client is configured yet: everyone is in the default tiers.',
  emptyDomain:
    'A client is an identity, such as a user or an address, that has a tier or an override of its own.',
  noMatch: (filters: string) => `No client matches ${filters}`,
  noMatchHelp:
    'A filter is a part of a value or a label: ac finds user:acme, and who is called Acme. With a kind it is how the value begins: user:ac.',
  noneDenied: 'No client that is configured is among the heaviest denied keys now.',
  deniedHelp: 'Denied within the last minute, of the heaviest keys; estimated from one decision in 16.',
  lookAgain: 'Look again',
  clear: 'Clear filters',
  client: 'Client',
  label: 'Label',
  override: 'Override',
  ends: 'Ends',
  used: 'Used now',
  deniedPerMinute: 'Denied/min',
  lastDenied: 'Last denied',
  changed: 'Changed',
  revision: (revision: number, by: string) => `v${revision} ${by}`,
  byDefault: (tier: string) => `${tier}, default`,
  none: '–',
  usedTitle: (used: string, limit: string, name: string) => `${used} of ${limit}, ${name}`,
  select: (id: string) => `Select ${id}`,
  selectAll: 'Select every row',
  selected: (count: string) => `${count} selected`,
  changeSelected: 'Change the selected…',
  changeAll: (count: string) => `Change all ${count} that match…`,
  changeMany: 'Change all that match…',
  clearSelection: 'Select none',
};

export const override = {
  blocked: 'blocked',
  unlimited: 'unlimited',
  noEnd: 'no end',
  ended: 'ended',
  in: (span: string) => `in ${span}`,
  soon: 'in under a minute',
};

export const client = {
  title: (id: string) => `Client ${id}`,
  gone: (id: string) => `There is no client ${id}`,
  goneHelp:
    'Nothing is configured for it: it is in the default tier of its kind. It may also have been deleted.',
  make: 'Make a client',
  inspect: 'Inspect',
  reset: 'Reset keys…',
  details: 'Client',
  tier: 'Tier',
  defaultTier: (tier: string) =>
    tier === '' ? 'the default of its kind' : `${tier}, the default of its kind`,
  label: 'Label',
  labelHint: 'a name for people',
  tags: 'Tags',
  tagsHint: 'beta eu',
  note: 'Note',
  override: 'Override',
  noOverride: 'None: it has what its tier has.',
  reason: 'Reason',
  changed: 'Changed',
  published: 'Published',
  effective: 'In force',
  effectiveHelp: 'Of a request that names nothing but this client.',
  manyHelp: 'It stands for many: which of them has what, the Inspector tells of each.',
  tierFrom: {
    client: (tier: string) => `Tier ${tier}, given to this client`,
    default: (tier: string, kind: string) => `Tier ${tier}, the default of ${kind}`,
    none: (kind: string) => `No tier: ${kind} has no default`,
  },
  hasEnded: 'The override has ended. The next version is without it.',
  unlimited: 'No limit applies to it.',
  limit: 'Limit',
  from: 'From',
  fromOverride: 'override',
  rate: 'Rate',
  burst: (burst: number) => `burst ${burst}`,
  used: 'Used now',
  usedOf: (used: string, limit: string) => `${used} of ${limit}`,
  free: 'All free',
  in: (span: string) => `in ${span}`,
  now: 'now',
  deniesAll: 'denies all',
  shadow: 'shadow',
  document: 'As in the document',
};

export const overrideForm = {
  title: 'Override',
  grants: {
    none: 'none',
    limits: 'limits of its own',
    blocked: 'blocked',
    unlimited: 'unlimited',
  },
  limitsHelp: 'Each takes the place of the limit of the same name of its tier; others are added.',
  ends: 'Ends',
  at: 'at this time',
  inHour: 'in 1 hour',
  inHours: (hours: number) => `in ${hours} hours`,
  inDay: 'in 1 day',
  inDays: (days: number) => `in ${days} days`,
  time: 'Time',
  timeUtc: 'Time (UTC)',
  noEndHelp: 'It stays until somebody ends it.',
  reason: 'Reason',
  reasonHint: 'why, for whoever meets it later',
};

export const temporary = {
  title: 'Temporary override',
  help: 'Operators give overrides of at most 24 hours. It is in force at once.',
  long: 'It has an override that lasts longer than 24 hours: changing that needs an editor.',
  set: 'Set it now',
  busy: 'Setting…',
  end: 'End it now',
  done: (version: number, others: number | null) =>
    others === null ? `v${version} in force` : `v${version} in force, and v${others} on all other nodes`,
  meanwhile: (by: string) =>
    `${by} changed this client meanwhile: look again, and set it if it is still meant.`,
  lost: 'The server does not answer. Whether it was done is not known: look again.',
};

export const mostDenied = {
  title: 'Most denied callers now',
  caller: 'Caller',
  limit: 'Denied by',
  perMinute: 'Denied/min',
  share: 'Share of all denied',
  make: 'Make a client',
  makeLabel: (id: string) => `Make a client of ${id}`,
  empty: 'Nobody was denied of late.',
  estimated: 'Estimated from one decision in 16.',
};

export const newClient = {
  title: 'New client',
  kind: 'Kind',
  kindHelp: 'The kind of identity that requests name, such as user, ip or api_key.',
  value: 'Value',
  valueHelp:
    'As requests name it. With * at the end it is for all that begin so; of ip it may be a network, 10.0.0.0/8.',
  shortened:
    'The server shows only how values that it saw begin, or which network they are in: write what the client is to be.',
  go: 'Continue',
  cancel: 'Cancel',
  kindFault: 'Small letters, digits and _, beginning with a letter',
  valueFault: 'Write a value',
};

export const importing = {
  title: 'Import clients',
  help: 'A CSV file, as Export writes it. Its first line names the columns: kind and value, and any of tier, label, tags, note, override, until, reason. All of it becomes one version, or nothing does.',
  file: 'File',
  missing: 'Clients that the file does not have',
  missings: { keep: 'stay', remove: 'are removed' },
  counts: {
    new: 'New',
    changed: 'Changed',
    unchanged: 'Unchanged',
    wrong: 'Wrong',
    removed: 'Removed',
  },
  tried: (version: number) => `What it would do to v${version}. Nothing is changed yet.`,
  triedAgain: 'The policy moved on meanwhile: this is what it would do now.',
  lines: 'Lines',
  line: 'Line',
  client: 'Client',
  outcome: 'Outcome',
  why: 'Why',
  outcomes: { new: 'new', changed: 'changed', unchanged: 'unchanged', wrong: 'wrong' },
  left: (count: string) => `and ${count} more`,
  wrong: 'Nothing is imported while lines are wrong.',
  nothing: 'Everything is like this already: there is nothing to publish.',
  message: 'import clients',
};

export const bulk = {
  title: 'Change many clients',
  whom: (clients: string) => `For ${clients}.`,
  matching: (filters: string) => `Those that match ${filters}.`,
  everybody: 'All clients of this domain.',
  about: 'How many they are is found out when it is published: you will be asked for the number.',
  what: 'Change',
  whats: {
    tier: 'Set the tier',
    override: 'Give an override',
    end: 'End the override now',
    remove: 'Remove the clients',
  },
  tier: 'Tier',
  noTier: 'the default of the kind',
  removed: 'Their overrides go with them, and they are in the default tiers.',
  moved: (count: string) =>
    `${count} match by now. Nothing was changed: look again, and publish if it is still meant.`,
  again: 'Others published meanwhile. Nothing was changed: publish again if it is still meant.',
  /** The message of what is only tried. */
  tried: 'tried',
};

export const many = {
  count: (count: string) => `Type ${count} to confirm how many clients change`,
  countFault: (count: string) => `This is for ${count} clients: type the number`,
};

export const filters = {
  typed: (text: string) => `“${text}”`,
  kind: (kind: string) => `kind ${kind}`,
  tier: (tier: string) => `tier ${tier}`,
  tag: (tag: string) => `tag ${tag}`,
  with: 'with override',
  without: 'without override',
};
