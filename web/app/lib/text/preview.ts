/** Made-up traffic, and previews of what is being edited, in an editor and in the publish panel. */

const many = (count: string, one: string, more: string) => `${count} ${count === '1' ? one : more}`;

export const patterns = {
  steady: 'steady',
  poisson: 'at random',
  burst: 'burst, then steady',
  ramp: 'ramp',
  on_off: 'on and off',
  waves: 'waves',
  retry: 'retry after denial',
};

export const parameters = {
  pattern: 'Pattern',
  requests: 'At once',
  to: 'To rate',
  on: 'On',
  off: 'Off',
  period: 'Every',
  back_off: 'Back-off',
  tries: 'Tries',
};

export const faultWords = {
  clients: 'A whole number, 1 or more',
  whole: 'A whole number, 1 or more',
  rate: 'A number and a period: 2 / 1s',
  length: 'A length: 250ms, 10s, 15m, 1h, 1d',
  request: 'A method and a path: POST /v1/search',
  seed: 'A whole number',
  start: 'A moment: 2026-11-21 00:00, or nothing',
  upload: 'Send a log, or choose one that is here',
  json: 'This is not JSON',
  changes: 'Nothing is changed any more; choose another policy',
  identity: 'A kind and a value: user:ada',
  rows: 'Add a source',
};

export const previewing = {
  title: 'Preview: one client',
  open: 'Open in Simulator',
  traffic: 'Traffic',
  rate: 'Rate',
  length: 'For',
  draft: 'Draft',
  published: 'Published',
  policy: 'Policy',
  allowed: 'Allowed',
  denied: 'Denied',
  first: 'First denial',
  longest: 'Longest wait',
  delay: 'Longest delay',
  none: '–',
  never: 'never',
  legend: (length: string) => `Above the line allowed, below it denied; 0 to ${length}`,
  strip: (policy: string, allowed: string, denied: string) =>
    `${policy}: ${allowed} allowed, ${denied} denied`,
  cut: (time: string, requests: string) =>
    `Only the first ${time}: a preview has at most ${requests} requests.`,
  fix: 'Fix the fields that need a look to update this.',
  failed: 'No preview:',
  recorded: 'as recorded',
  client: 'Client',
  clientHint: 'user:ada',
  ofClient: (requests: string, from: string, to: string) =>
    `${many(requests, 'request', 'requests')} as recorded, from ${from} to ${to}; it begins with nothing used.`,
  incomplete: 'Some requests of the sample were not kept, perhaps of this client.',
};

export const impact = {
  title: 'Impact',
  recorded: (oneIn: string, minutes: string) =>
    `On the last ${minutes} min of ${oneIn === '1' ? 'everybody' : `one identity in ${oneIn}`}:`,
  shown: 'Of the run in the Simulator:',
  asking: 'Trying it on what was recorded…',
  off: 'Nothing is recorded (see --record), so this is one made-up client:',
  empty: 'Nothing was recorded within the last 15 minutes, so this is one made-up client:',
  denied: (from: string, to: string) => `Denied ${from} → ${to}`,
  clients: (gain: string, lose: string) =>
    `${many(gain, 'client gains', 'clients gain')}, ${many(lose, 'loses', 'lose')}`,
  clientsSay: 'Gains: fewer of its requests are denied. Loses: more of them are.',
  clientsOf: (listed: string) => `Only ${listed} clients were counted one by one.`,
  same: 'No recorded request would be decided otherwise.',
  client: (key: string, from: string, to: string) => `${key}: ${from} → ${to} denied`,
  previewed: (object: string, rate: string, length: string, requests: string) =>
    `${object}, asked ${rate} for ${length} (${requests} requests):`,
  nothing: 'These changes have no preview.',
  open: 'Open in Simulator',
  busy: 'Another run of yours has not ended.',
  unsampled: 'Some limits cannot be told by a sample.',
};
