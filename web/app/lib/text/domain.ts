/** The settings of a domain. */

export const domain = {
  title: (name: string) => `Domain ${name}`,
  gone: (name: string) => `There is no domain ${name}`,
  settings: 'Settings',
  defaults: 'Default tiers',
  defaultsHelp:
    'The tier of whoever is no configured client, by kind of identity. Identities of other kinds are in no tier.',
  kind: 'Kind of identity',
  kindHint: 'Another kind, such as tenant',
  add: 'Add',
  remove: (kind: string) => `Remove the default tier of ${kind}`,
  removeShort: 'Remove',
  tierHint: 'A request may name its own tier',
  tierHintHelp: 'Of identities that nobody assigned. Only where those who ask for decisions can be believed.',
  choices: {
    on_error: {
      label: 'When nothing can be decided',
      ways: { open: 'allow', closed: 'deny' },
      help: 'What a door answers then, and marks as such.',
    },
    headers: {
      label: 'Response headers',
      ways: { 'x-ratelimit': 'X-RateLimit-*', ietf: 'RateLimit of the IETF draft', none: 'none' },
      help: 'What callers are told of their limits.',
    },
    reset: {
      label: 'X-RateLimit-Reset',
      ways: { epoch: 'Unix seconds', delta: 'seconds from now' },
      help: 'When all is free again.',
    },
    descriptors: {
      label: 'A descriptor of Envoy meets',
      ways: { exact: 'rules of exactly its kinds', subset: 'rules of some of its kinds' },
      help: 'As in envoyproxy/ratelimit, or as in limitador.',
    },
    descriptor_paths: {
      label: 'A path in a descriptor of Envoy is',
      ways: { endpoint: 'the endpoint of rules', identity: 'an identity, in where' },
      help: 'The same goes for a method. Imports from other limiters set it to an identity.',
    },
  },
  timezone: 'Time zone',
  timezoneHelp: 'Of calendar periods (day, week, month): Europe/Berlin. Empty means UTC.',
};
