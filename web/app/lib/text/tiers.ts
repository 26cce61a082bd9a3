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
  settings: 'Domain settings',
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
  rename: 'Rename…',
  export: 'Export JSON',
  deleting: 'This goes with the next version that you publish. Discard the change to keep it.',
  renaming: (name: string) => `It is called ${name} from the next version that you publish on.`,
  limits: 'Limits',
  limitsHelp: 'All of them must pass, in this order.',
  unlimited: 'Unlimited',
  unlimitedHelp: 'Requests of this tier are counted nowhere and never denied.',
  description: 'Description',
  descriptionHelp: (most: number) =>
    `Who is in it, and why. At most ${most} characters; lines may be several.`,
  id: 'Limit',
  algorithm: 'Algorithm',
  rate: 'Rate',
  rateHint: '6000 / 1m',
  burst: 'Burst',
  burstHint: 'the limit',
  maxDebt: 'Largest debt',
  maxDebtHint: 'the limit',
  maxDebtHelp:
    'Tokens above the burst that settlements of reservations may leave owed. More of an excess is not charged.',
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
    help: 'Small letters, digits, _ and -, beginning with a letter.',
    taken: 'There is a tier of this name',
    create: 'Create',
  },
  rule: {
    title: 'New rule',
    copy: (name: string) => `Duplicate rule ${name}`,
    name: 'Name',
    help: 'Small letters, digits, _ and -, beginning with a letter.',
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

export const rename = {
  title: { tier: (id: string) => `Rename tier ${id}`, rule: (id: string) => `Rename rule ${id}` },
  name: 'New name',
  same: 'That is its name already',
  follows: 'In the same version these name it by the new name:',
  nothing: 'Nothing names it.',
  counters:
    'Counters belong to names, so those of its limits begin anew: nothing is used under the new name. Figures up to now stay under the old one.',
  hint: 'Requests that name their tier themselves have to name it by the new name from then on.',
  add: 'Add to my changes',
  keep: 'Keep the name',
};
