/** The find box. */

export const find = {
  title: 'Find',
  label: 'Find',
  found: 'Found',
  hint: 'Client, key, tier, rule, node, version or page',
  groups: {
    clients: 'Client',
    keys: 'Key',
    tiers: 'Tier',
    rules: 'Rule',
    nodes: 'Node',
    versions: 'Version',
    pages: 'Page',
    actions: 'Action',
    inspector: 'Inspector',
  },
  audit: 'Audit log',
  domain: 'Domain settings',
  account: 'My account',
  publish: 'Review and publish the changes',
  pause: 'Pause the live figures',
  goOn: 'Go on with the live figures',
  inspect: (value: string, kind: string) => `Inspect “${value}” as ${kind}`,
  nothing: (typed: string) => `Nothing is called “${typed}”.`,
};
