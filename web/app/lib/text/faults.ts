/** What is wrong with fields of the policy. */

export const faults = {
  form: 'Write a number and a period: 100/s, 6000 / 1m, 10k per hour',
  number: 'The number before the slash is not one: 100, 6,000, 10k',
  whole: 'Only whole numbers: 3 / 2s instead of 1.5 / s',
  large: 'This number is too large',
  period: 'The period is not one: 250ms, 1s, 15m, 1h, 1d; a fixed window also takes day, week, month',
  id: 'Small letters, digits, _ and -, beginning with a letter',
  'id-twice': 'Another limit has this name',
  tag: 'Small letters, digits, _ and -, each tag beginning with a letter, spaces between them',
  'tag-twice': 'A tag stands here twice',
  'burst-number': 'A whole number, or nothing',
  'burst-zero': 'At least 1, or nothing',
  debt: 'A whole number from 0, or nothing',
  algorithm: 'Choose one',
  'no-limits': 'Add a limit, or tick Unlimited',
  'many-limits': 'More limits than the server takes',
  missing: 'This is needed',
  cost: 'A whole number from 1',
  share: 'A share above 0 and up to 1, such as 0.5',
  summary: (count: number) => (count === 1 ? 'One field needs a look:' : `${count} fields need a look:`),
};
