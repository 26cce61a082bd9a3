/** A page that edits one object: the object in force, its entry in the change list, and which faults are shown. */
import { tick, untrack } from 'svelte';
import { getObject } from '../../api/calls.ts';
import type { Item, Kind, Objects } from '../../api/types.ts';
import { afterPress } from '../../dom/afterpress.ts';
import { faultsOf, type Faults } from '../../policy/faults.ts';
import { fieldId } from '../../policy/fieldid.ts';
import type { Grammar } from '../../policy/form.ts';
import { changes } from '../../state/changes/changes.svelte.ts';
import { isChanged, type Entry } from '../../state/changes/entry.ts';
import { live } from '../../state/live/live.svelte.ts';
import { Loading } from '../../state/loading.svelte.ts';
import { navigation } from '../../state/navigation.svelte.ts';
import { overlay } from '../../state/overlay.svelte.ts';
import { session } from '../../state/session.svelte.ts';

export class Editor<K extends Kind, Of extends Item<Objects[K]> = Item<Objects[K]>> {
  readonly #kind: K;
  readonly #domain: string;
  readonly #id: string;
  readonly loading: Loading<Of>;
  readonly mayEdit = session.may('editor');
  readonly grammar: Grammar | null = $derived(session.meta);
  readonly entry: Entry | undefined = $derived.by(() => changes.find(this.#kind, this.#domain, this.#id));
  readonly changed: boolean = $derived(this.entry !== undefined && isChanged(this.entry));
  readonly faults: Faults = $derived(
    this.entry && this.grammar ? faultsOf(this.entry.kind, this.entry.form, this.grammar) : {},
  );
  /** Faults of fields that lost the focus; all faults after a try to publish. */
  readonly shownFaults: Faults = $derived(
    Object.fromEntries(
      Object.entries(this.faults).filter(([where]) => this.checkedAll || this.#checked[where]),
    ),
  );
  checkedAll = $state(false);
  #checked = $state<Record<string, boolean>>({});

  /** Made while its page is. */
  constructor(kind: K, domain: string, id: string) {
    [this.#kind, this.#domain, this.#id] = [kind, domain, id];
    this.loading = new Loading(async (signal) => (await getObject(kind, domain, id, signal)) as Of);
    $effect(() => {
      // What is to be new is not there to be read.
      if (this.entry?.op !== 'create') this.loading.follow(live.policyVersion);
    });
    $effect(() => {
      if (this.loading.data) untrack(() => this.#open());
    });
    $effect(() => {
      // What is edited after a publish begins anew.
      if (!this.changed) untrack(() => this.#uncheck());
    });
    $effect(() => () => {
      const { entry } = this;
      // While effects end, the list still reads as it was before the move.
      queueMicrotask(() => entry && changes.close(entry));
    });
  }

  check(where: string): void {
    afterPress(() => (this.#checked[where] = true));
  }

  /** Goes on to the publish panel, or to the first fault. */
  async review(): Promise<void> {
    if (!this.changed) return;
    this.checkedAll = true;
    const [first] = this.entry?.op === 'delete' ? [] : Object.keys(this.faults);
    if (first === undefined) {
      overlay.show('publish');
      return;
    }
    await tick();
    document.getElementById(fieldId(first))?.focus();
  }

  discard(): void {
    if (!this.entry) return;
    // Without its change there is nothing to look at here.
    if (this.entry.op === 'create') navigation.go(navigation.to(`/${this.#kind}s`));
    changes.drop(this.entry);
    this.#open();
  }

  #uncheck(): void {
    this.#checked = {};
    this.checkedAll = false;
  }

  #open(): void {
    const item = this.loading.data;
    if (item) changes.open(this.#kind, this.#domain, item, live.policyVersion ?? item.revision);
  }
}
