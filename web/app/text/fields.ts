/** Names of fields, as differences and faults have them. */

export const fields = {
  known: {
    algorithm: 'algorithm',
    rate: 'rate',
    burst: 'burst',
    unlimited: 'unlimited',
    order: 'order of the limits',
    mode: 'mode',
    sharing: 'sharing',
    on_failure: 'on failure',
    enabled: 'on',
    endpoint: 'endpoint',
    method: 'method',
    per: 'counts per',
    tiers: 'only tiers',
    cost: 'cost',
    'override.blocked': 'blocked',
    'override.unlimited': 'unlimited',
    'override.until': 'override ends',
    'override.reason': 'reason of the override',
  } as Record<string, string>,
  limit: (id: string) => `limit ${id}`,
  ofLimit: (limit: string, field: string) => `${limit} ${field}`,
  whole: 'all of it',
  noEnd: 'no end',
};
