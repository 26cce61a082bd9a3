/** Three-way merges: what is taken, what stays, what a person must decide. */
import { expect, test } from 'vitest';
import { differences, sameForm, textAt } from '../app/lib/policy/fields.ts';
import { newRow, type Form } from '../app/lib/policy/form.ts';
import { merge, takeTheirs } from '../app/lib/policy/merge.ts';
import { edited, form, row } from './samples.ts';

const rate = (id: string, typed: string) => (form: Form) => {
  row(form, id).rate = typed;
};
const added = (id: string, typed: string) => (form: Form) => {
  form.limits.push({ ...newRow(form, 'fixed_window'), id, rate: typed });
};
const removed = (id: string) => (form: Form) => {
  form.limits = form.limits.filter((one) => one.id !== id);
};

test('different fields merge silently', () => {
  const {
    form: merged,
    clashes,
    taken,
  } = merge(
    form(),
    edited((theirs) => (row(theirs, 'second').burst = '30')),
    edited(rate('second', '15 / 1s')),
  );
  expect(clashes).toEqual([]);
  expect(taken).toEqual(['limits/second/burst']);
  expect(row(merged, 'second')).toMatchObject({ rate: '15 / 1s', burst: '30' });
});

test('the same field changed differently is a clash, and yours stands until it is decided', () => {
  const theirs = edited(rate('minute', '300 / 1m'));
  const { form: merged, clashes } = merge(form(), theirs, edited(rate('minute', '250 / 1m')));
  expect(clashes).toEqual([
    { path: 'limits/minute/rate', base: '1000 / 1m', theirs: '300 / 1m', yours: '250 / 1m' },
  ]);
  expect(row(merged, 'minute').rate).toBe('250 / 1m');
  expect(row(takeTheirs(merged, theirs, 'limits/minute/rate'), 'minute').rate).toBe('300 / 1m');
});

test('equal values are no clash, however they are written', () => {
  const { clashes } = merge(
    form(),
    edited(rate('minute', '2000 / 1m')),
    edited(rate('minute', '2k per minute')),
  );
  expect(clashes).toEqual([]);
});

test('text that is not yet a rate is yours', () => {
  const { form: merged, clashes } = merge(
    form(),
    edited(rate('minute', '300 / 1m')),
    edited(rate('minute', '25')),
  );
  expect(clashes).toHaveLength(1);
  expect(row(merged, 'minute').rate).toBe('25');
});

test('limits added on both sides are both there', () => {
  const { form: merged, clashes } = merge(form(), edited(added('hour', '1/h')), edited(added('day', '1/d')));
  expect(clashes).toEqual([]);
  expect(merged.limits.map(({ id }) => id)).toEqual(['second', 'minute', 'hour', 'day']);
  expect(new Set(merged.limits.map(({ key }) => key)).size).toBe(4);
});

test('a limit added on both sides clashes where it differs', () => {
  const { clashes } = merge(form(), edited(added('hour', '1/h')), edited(added('hour', '2/h')));
  expect(clashes).toEqual([{ path: 'limits/hour/rate', base: null, theirs: '1 / 1h', yours: '2 / 1h' }]);
});

test('a removal of an untouched limit is taken, also both at once', () => {
  const mine = merge(form(), form(), edited(removed('minute')));
  const theirs = merge(form(), edited(removed('minute')), form());
  const both = merge(form(), edited(removed('minute')), edited(removed('minute')));
  for (const { form: merged, clashes } of [mine, theirs, both]) {
    expect(clashes).toEqual([]);
    expect(merged.limits.map(({ id }) => id)).toEqual(['second']);
  }
});

test('a limit removed here and changed there is one question', () => {
  const theirs = edited(rate('minute', '300 / 1m'));
  const { form: merged, clashes } = merge(form(), theirs, edited(removed('minute')));
  expect(clashes).toMatchObject([{ path: 'limits/minute', yours: null, theirs: 'fixed_window 300 / 1m' }]);
  expect(takeTheirs(merged, theirs, 'limits/minute').limits.map(({ id }) => id)).toContain('minute');

  const other = merge(form(), edited(removed('minute')), edited(rate('minute', '250 / 1m')));
  expect(other.clashes).toMatchObject([
    { path: 'limits/minute', theirs: null, yours: 'fixed_window 250 / 1m' },
  ]);
  const without = takeTheirs(other.form, edited(removed('minute')), 'limits/minute');
  expect(without.limits.map(({ id }) => id)).toEqual(['second']);
});

test('a limit that comes back stands where it stands with them', () => {
  const theirs = edited(rate('second', '11 / 1s'));
  const { form: merged } = merge(form(), theirs, edited(removed('second')));
  const back = takeTheirs(merged, theirs, 'limits/second');
  expect(back.limits.map(({ id }) => id)).toEqual(['second', 'minute']);
  expect(new Set(back.limits.map(({ key }) => key)).size).toBe(2);
  expect(sameForm(back, theirs)).toBe(true);
});

test('their side of a field brings back the limit that was removed meanwhile', () => {
  const theirs = edited(rate('second', '11 / 1s'));
  const back = takeTheirs(edited(removed('second')), theirs, 'limits/second/rate');
  expect(sameForm(back, theirs)).toBe(true);
});

test('unlimited against a changed limit is one question, against nothing is none', () => {
  const unlimited = edited((form) => (form.fields['unlimited'] = true));
  expect(merge(form(), unlimited, form())).toMatchObject({
    form: { fields: { unlimited: true } },
    clashes: [],
  });
  expect(merge(form(), form(), unlimited)).toMatchObject({
    form: { fields: { unlimited: true } },
    clashes: [],
  });
  const { clashes } = merge(form(), edited(rate('minute', '1/s')), unlimited);
  expect(clashes).toMatchObject([{ path: '', yours: 'unlimited' }]);
});

test('fields that the form does not know are merged too', () => {
  const shadow = (mode: string) => edited((form) => (row(form, 'second').fields['mode'] = mode));
  expect(merge(form(), shadow('shadow'), form())).toMatchObject({
    clashes: [],
    taken: ['limits/second/mode'],
  });
  const { clashes } = merge(form(), shadow('shadow'), shadow('other'));
  expect(clashes).toEqual([
    { path: 'limits/second/mode', base: 'enforce', theirs: 'shadow', yours: 'other' },
  ]);
});

test('rows whose names are being typed are never lost', () => {
  const typing = edited((form) => {
    added('', '5/s')(form);
    added('second', '6/s')(form);
  });
  const { form: merged } = merge(form(), edited(rate('second', '11 / 1s')), typing);
  expect(merged.limits.map(({ rate }) => rate)).toEqual(['11 / 1s', '1000 / 1m', '5/s', '6/s']);
});

const moved = (form: Form) => form.limits.reverse();
const idsOf = (of: Form) => of.limits.map(({ id }) => id);

test('limits that you moved stay moved, whatever else they changed', () => {
  const theirs = edited((form) => {
    rate('second', '11 / 1s')(form);
    added('hour', '3/h')(form);
  });
  const { form: merged, clashes } = merge(form(), theirs, edited(moved));
  expect(clashes).toEqual([]);
  expect(idsOf(merged)).toEqual(['minute', 'hour', 'second']);
  expect(row(merged, 'second').rate).toBe('11 / 1s');
  expect(idsOf(merge(form(), edited(moved), edited(rate('second', '11 / 1s'))).form)).toEqual([
    'minute',
    'second',
  ]);
  expect(merge(form(), edited(moved), edited(moved)).clashes).toEqual([]);
});

test('limits that both moved differently are one question', () => {
  const three = (ids: string[]) =>
    edited((form) => {
      added('day', '5/d')(form);
      form.limits = ids.map((id) => row(form, id));
    });
  const [base, theirs, yours] = [
    three(['second', 'minute', 'day']),
    three(['minute', 'second', 'day']),
    three(['second', 'day', 'minute']),
  ];
  const merged = merge(base, theirs, yours);
  expect(merged.clashes).toEqual([
    {
      path: 'order',
      base: 'second, minute, day',
      theirs: 'minute, second, day',
      yours: 'second, day, minute',
    },
  ]);
  expect(idsOf(merged.form)).toEqual(['second', 'day', 'minute']);
  expect(idsOf(takeTheirs(merged.form, theirs, 'order'))).toEqual(['minute', 'second', 'day']);
});

/** A small generator: the same edits on every run. */
function random(seed: number): () => number {
  let state = seed;
  return () => (state = (state * 48271) % 2147483647) / 2147483647;
}

test('no edit gets lost, whoever makes it', () => {
  const next = random(7);
  const edits = [
    ...['second', 'minute'].flatMap((id) => [rate(id, '1/s'), rate(id, '2/s'), removed(id)]),
    added('hour', '3/h'),
    added('hour', '4/h'),
    added('day', '5/d'),
    moved,
    () => undefined,
  ];
  const pick = () => edits[Math.floor(next() * edits.length)] ?? (() => undefined);
  for (let round = 0; round < 500; round += 1) {
    const [theirs, yours] = [pick(), pick()].map((edit) => edited(edit));
    if (!theirs || !yours) continue;
    const merged = merge(form(), theirs, yours);
    // What one side alone changed is in the result; else deciding all for one side gives that side's values.
    const alone = (edit: Form) => differences(form(), edit).map(({ path, to }) => [path, to] as const);
    const asked = new Set(merged.clashes.map(({ path }) => path));
    for (const [path, to] of [...alone(theirs), ...alone(yours)]) {
      if (path === 'order' || [...asked].some((clash) => path.startsWith(clash) || clash.startsWith(path)))
        continue;
      expect([path, textAt(merged.form, path)]).toEqual([path, to]);
    }
    if (merged.clashes.length === 0) {
      const other = merge(form(), yours, theirs);
      expect(other.clashes).toEqual([]);
      const sorted = (of: Form) => ({
        ...of,
        limits: of.limits.toSorted((a, b) => a.id.localeCompare(b.id)),
      });
      expect(sameForm(sorted(merged.form), sorted(other.form))).toBe(true);
    } else {
      let decided = merged.form;
      for (const { path } of merged.clashes) decided = takeTheirs(decided, theirs, path);
      expect(merge(theirs, theirs, decided).clashes).toEqual([]);
      expect(merge(form(), theirs, decided).clashes).toEqual([]);
    }
  }
});
