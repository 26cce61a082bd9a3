/** Tiers, and the form of limits. */

export const tiers = {
  title: 'Tiers',
  one: 'tier',
  count: (count: number) => `${count} ${count === 1 ? 'tier' : 'tiers'}`,
  name: 'Name',
  algorithm: 'Algorithm',
  limits: 'Limits',
  burst: 'Burst',
  defaultOf: 'Default of',
  usedBy: 'Used by',
  used: (rules: number, clients: number) =>
    [
      rules > 0 ? `${rules} ${rules === 1 ? 'rule' : 'rules'}` : '',
      clients > 0 ? `${clients} ${clients === 1 ? 'client' : 'clients'}` : '',
    ]
      .filter(Boolean)
      .join(', ') || '–',
  now: 'Now/s',
  denied: 'Denied',
  hour: 'Denied, last hour',
  changed: 'Changed',
  revision: (revision: number) => `v${revision}`,
  make: 'New tier',
  choose: 'To compare',
  chooseOne: (id: string) => `Compare ${id}`,
  compare: (count: number) => (count < 2 ? 'Compare: tick a second one' : 'Compare both'),
  unlimited: 'unlimited',
  several: 'several',
  none: '–',
};

export const tier = {
  title: (id: string) => `Tier ${id}`,
  back: 'Tiers',
  discard: 'Discard',
  review: 'Review and publish',
  nothing: 'Nothing is changed.',
  readOnly: 'Read only: publishing takes an editor.',
  copy: 'Duplicate',
  delete: 'Delete',
  export: 'Export JSON',
  deleting: 'This goes with the next version that you publish. Discard the change to keep it.',
  limits: 'Limits',
  limitsHelp: 'All of them must pass, in this order.',
  unlimited: 'Unlimited',
  unlimitedHelp: 'Requests of this tier are counted nowhere and never denied.',
  id: 'Limit',
  algorithm: 'Algorithm',
  rate: 'Rate',
  rateHint: '6000 / 1m',
  burst: 'Burst',
  burstHint: 'the limit',
  mode: 'Mode',
  modes: {
    enforce: 'enforce',
    shadow: 'shadow',
    help: 'A shadow counts what it would deny, and lets it pass.',
  },
  converted: 'What was used is converted when the algorithm changes.',
  sharing: {
    summary: (way: string) => `Shared by nodes: ${way}`,
    label: 'How nodes share it',
    ways: {
      local: 'local',
      strict: 'strict',
      leased: 'leased',
      synced: 'synced',
    },
    bounds: {
      local: 'Each node counts alone: on n nodes at most n times the limit.',
      strict: 'Every check asks the store: never above the limit on all nodes together.',
      leased: 'A node takes tokens ahead: never above the limit, and a part of it may lie unused on a node.',
      synced: 'Each node counts alone until nodes exchange what they counted.',
    },
    onFailure: 'When the store does not answer',
    failures: {
      usual: 'count alone with half of it (usual)',
      local: 'count alone with a part of it',
      open: 'allow',
      closed: 'deny',
    },
    share: 'The part that a node counts alone with',
  },
  json: {
    show: 'JSON',
    hide: 'Form',
    label: 'As the policy document has it',
    wrong: (id: string) =>
      `This is not JSON of an object whose id is ${id} and whose limits have id, algorithm, limit and period: it is kept here, and the form keeps what it had.`,
    faulty: 'The form has a fault: what is mended there can be shown as JSON.',
  },
  up: 'Move up',
  add: 'Add a limit',
  remove: (id: string) => (id === '' ? 'Remove the new limit' : `Remove limit ${id}`),
  removeShort: 'Remove',
  row: (id: string, at: number) => (id === '' ? `Limit ${at}` : `Limit ${id}`),
  advanced: 'Advanced',
  advancedHelp: 'Fields that this form does not know. They are kept as they are.',
  effect: 'In force',
  usedBy: 'Used by',
  defaultOf: (kinds: string) => `Default tier of ${kinds}`,
  clients: (count: number) => `${count} ${count === 1 ? 'client' : 'clients'}`,
  unused: 'Nobody: it is no default, and no rule or client names it.',
  ruleLabel: 'Rule',
  live: 'Now',
  allowed: 'Allowed/s',
  denied: 'Denied/s',
  meanwhile: (who: string, version: number) => `${who} published v${version} while you edited.`,
  takenOver: (fields: string) => `Taken over, because you had not touched it: ${fields}.`,
  bothChanged: (fields: string) => `Changed by both of you: ${fields}. Publishing asks which one holds.`,
  changedBy: (who: string) => `changed by ${who}`,
  nowYours: (theirs: string, who: string, yours: string) => `now ${theirs} (${who}), yours ${yours}`,
  deletedMeanwhile: (name: string, who: string) =>
    `${who === '' ? 'Someone' : who} deleted ${name} while you edited. Publishing asks whether it is created anew.`,
  notLasting: 'This browser stores nothing: changes last as long as this tab.',
  absent: 'nothing',
};

export const newObject = {
  tier: {
    title: 'New tier',
    copy: (name: string) => `Duplicate tier ${name}`,
    name: 'Name',
    help: 'It stays: a tier is not renamed later.',
    taken: 'There is a tier of this name',
    create: 'Create',
  },
  rule: {
    title: 'New rule',
    copy: (name: string) => `Duplicate rule ${name}`,
    name: 'Name',
    help: 'It stays: a rule is not renamed later.',
    taken: 'There is a rule of this name',
    create: 'Create',
  },
};

export const deleteTier = {
  title: (id: string) => `Delete tier ${id}`,
  used: 'It is in use. In the same version, all of these go to another tier:',
  to: 'To the tier',
  move: (clients: number, to: string) =>
    clients === 0
      ? `Move all to ${to} and delete`
      : `Move ${clients} ${clients === 1 ? 'client' : 'clients'} to ${to} and delete`,
  many: (most: number) =>
    `More than ${most} clients are in it: give them another tier on the Clients page first.`,
  last: 'It is the only tier. A domain keeps one.',
};

export const compareTiers = {
  title: (one: string, other: string) => `Tiers ${one} and ${other}`,
  field: 'Field',
  help: (count: number) => (count === 0 ? 'They are alike.' : `${count} of these differ, marked by ≠.`),
};
