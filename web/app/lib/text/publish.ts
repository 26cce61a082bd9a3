/** The publish panel. */
import { count } from '../format/format.ts';

export const publish = {
  title: 'Publish',
  message: 'Message',
  messageHelp: 'One line: what this is for.',
  messageMissing: 'Write what this change is for',
  messageLong: (bytes: number) => `At most ${bytes} bytes`,
  object: (kind: string, id: string, domain: string) =>
    domain === 'default' ? `${kind} ${id}` : `${kind} ${id} of ${domain}`,
  from: 'from',
  to: 'to',
  button: (version: number) => `Publish v${version}`,
  buttonOnTop: (version: number) => `Publish on top of v${version}`,
  busy: 'Publishing…',
  cancel: 'Cancel',
  back: 'Back to editing',
  edit: 'Edit',
  drop: 'Drop',
  dropLabel: (name: string) => `Drop the change of ${name}`,
  empty: 'Nothing is changed.',
  unready: (name: string) => `${name} has fields that need a look.`,
  editLabel: (name: string) => `Edit ${name}`,
  draft: 'draft',
  draftNew: 'draft, new',
  draftDeleted: 'draft, deleted',
  isNew: 'new',
  isDeleted: 'deleted',
  goes: 'It goes with this version.',
  renamed: 'What names it follows in this version. Its counters begin anew under the new name.',
  carry: {
    label: (limit: string) => `What was used of ${limit}`,
    keep: 'stays used',
    proportional: 'keeps its share',
    reset: 'is forgotten',
  },
  warnings: (count: number) =>
    count === 1 ? 'The server warns of one thing:' : `The server warns of ${count} things:`,
  ofLimit: (limit: string) => `, limit ${limit}`,
  wouldRefuse: 'The server would refuse this list.',
  andOthers: (others: number) => (others === 0 ? '' : ` and ${count(others)} more`),
  loosensHits: (rate: string) => `${rate} requests a second would no longer be limited.`,
  confirm: 'Yes, that is meant',
  confirmMissing: 'Tick the box if that is meant',
  refused: 'The server refused this list.',
  noImpact: 'What it changes for clients could not be worked out now.',
  lost: 'No answer came. Publishing again is safe: the same list is never published twice.',
  ends: {
    unready: 'Others published meanwhile, and together some fields need a look. Nothing was published.',
    outrun: 'Others published faster each time. Nothing was published; publish again.',
    failed:
      'Something went wrong in this page. Publishing again is safe: the same list is never published twice.',
  },
  inForce: (version: number) => `v${version} in force`,
  others: (version: number) => `A rollout is open: all other nodes get the same change as v${version}.`,
  onTop: (version: number) => `Applied on top of v${version}, which did not touch these objects.`,
  merged: (objects: string) => `Put together with what others published meanwhile: ${objects}.`,
  inHistory: 'See it in History',
  close: 'Close',
  rollBack: 'Roll back…',
  conflicts: {
    title: 'Both of you changed this',
    intro: 'Choose which one holds. Everything else was put together.',
    field: 'Field',
    base: 'Before',
    theirs: 'Theirs',
    theirsBy: (version: number, who: string) => `Theirs v${version} (${who})`,
    yours: 'Yours',
    deleted: (name: string, who: string) =>
      `${who === '' ? 'Someone' : who} deleted ${name}, and you edited it.`,
    changedMeanwhile: (name: string, who: string) =>
      `${who === '' ? 'Someone' : who} changed ${name}, which you delete. Choose what holds.`,
    delete: 'delete it',
    anew: 'Create it anew',
    dropMine: 'Drop my change',
    choose: 'Choose for each field first',
  },
};

/** A change list that is shared. */
export const drafts = {
  share: 'Share',
  shared: 'Saved for 30 days. Whoever is signed in can open it by this link.',
  link: 'Link to the draft',
  title: 'Shared draft',
  by: (who: string) => `${who} shared it`,
  does: (op: string, name: string) =>
    `${op === 'create' ? 'New' : op === 'delete' ? 'Delete' : 'Change'}: ${name}`,
  replaces: 'in place of your own change',
  ends: 'It is kept until',
  take: 'Add to my changes',
};
