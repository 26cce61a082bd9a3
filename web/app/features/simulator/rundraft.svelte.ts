/**
 * The simulation run that is being composed. It survives a change of page and a reload, like everything that is
 * typed.
 */
import { startRun } from '../../lib/api/calls/simulations.ts';
import { RefusedError } from '../../lib/api/request.ts';
import type { Run } from '../../lib/api/schema.ts';
import { session } from '../../lib/state/session.svelte.ts';
import { read, write } from '../../lib/state/storage.ts';
import { faultWords } from '../../lib/text/preview.ts';
import { isOwnList, ownList } from './ownlist.svelte.ts';
import { askOf, example, formOfAsk, parseRunForm, runFaults, type RunFields } from './runform.ts';
import { newRow, type TrafficRow } from './traffic.ts';

class RunDraft {
  form = $state<RunFields>(example('default', 'live'));
  /** The run that was started with this question as it stands. */
  run = $state('');
  busy = $state(false);
  error = $state.raw<unknown>(null);
  /** Faults are shown once a run was asked for. */
  checked = $state(false);
  /** What the server refused, by pointer, until the question is another. */
  #refused = $state.raw<{ question: string; messages: Record<string, string> } | null>(null);
  #loaded = '';

  faults = $derived(runFaults(this.form, ownList.list));
  #text = $derived(JSON.stringify(this.form));

  /** Starts with what this user left behind, or with an example. */
  load(domain: string): void {
    const key = `tidegate.question:${encodeURIComponent(session.user?.environment ?? '')}:${encodeURIComponent(session.user?.name ?? '')}`;
    if (this.#loaded === key) return;
    this.#loaded = key;
    this.form = parseRunForm(read(key) ?? '') ?? this.#example(domain);
  }

  keep(): void {
    if (this.#loaded !== '') write(this.#loaded, this.#text);
  }

  reset(domain: string): void {
    this.form = this.#example(domain);
    this.checked = false;
  }

  #example(domain: string): RunFields {
    return example(domain, ownList.list ? 'mine' : 'live');
  }

  /** The traffic of a preview, as the only source, under what is in force and what is being edited. */
  take(domain: string, like: Partial<TrafficRow>): void {
    this.load(domain);
    const policies = this.#example(domain);
    this.form = {
      ...policies,
      rows: [newRow([], like)],
      ...(ownList.list ? {} : { a: { ...policies.a, choice: 'none' } }),
    };
  }

  /** Two policies, as they are named in an address: `live`, `none`, `mine`, `version:3`. */
  choose(a: string, b: string): void {
    this.form.a.choice = a;
    this.form.b.choice = b;
  }

  /** The question of a run, to be changed. */
  again(run: Run): void {
    if (this.run === run.id || !run.asked) return;
    this.form = formOfAsk(run.asked);
    const { b } = this.form;
    if (typeof run.asked.b === 'object' && 'changes' in run.asked.b && isOwnList(run.asked.b.changes.changes))
      b.choice = 'mine';
    this.checked = false;
  }

  faultAt(pointer: string): string {
    const refused = this.#refused?.question === this.#text ? this.#refused.messages[pointer] : undefined;
    const fault = this.checked ? this.faults[pointer] : undefined;
    return fault ? faultWords[fault] : (refused ?? '');
  }

  /** Null: something is wrong with the question, and is shown at its place. */
  async start(): Promise<Run | null> {
    this.checked = true;
    this.error = null;
    const ask = askOf(this.form, ownList.list);
    if (!ask || this.busy) return null;
    this.busy = true;
    const question = this.#text;
    try {
      const run = await startRun(ask);
      this.run = run.id;
      this.checked = false;
      return run;
    } catch (error) {
      this.error = error;
      if (!(error instanceof RefusedError)) return null;
      const errors = error.problem.errors ?? [];
      const messages = Object.fromEntries(
        errors.map(({ pointer, message }) => [placed(pointer ?? ''), message]),
      );
      this.#refused = { question, messages };
      return null;
    } finally {
      this.busy = false;
    }
  }
}

/** A pointer into the question is that of a field of the form. */
function placed(pointer: string): string {
  return pointer
    .replace(/\/per$/, '/rate')
    .replace(/\/(path|method)$/, '/request')
    .replace(/^(\/[ab]\/(?:document|changes|version|draft)).*/, '$1');
}

export const runDraft = new RunDraft();
