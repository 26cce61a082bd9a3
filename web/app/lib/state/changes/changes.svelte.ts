/**
 * The change list: every edit that is not yet published. It outlives a reload, a lost session and a crash, because
 * each edited object is kept in the browser's storage, under the environment and the user, and follows what other
 * tabs do to it.
 */
import type { Item, Kind, Objects } from '../../api/types.ts';
import { copyForm, type Form } from '../../policy/form.ts';
import { keys, read, remove, write } from '../storage.ts';
import { entryOf, isChanged, nameOf, newEntry, parseEntry, rebase, type Entry } from './entry.ts';

const MESSAGE = 'message';

class Changes {
  entries = $state<Entry[]>([]);
  /** What is new in a domain comes after the domain. */
  changed: Entry[] = $derived(this.entries.filter(isChanged).sort((one, other) => rank(one) - rank(other)));
  /** The message that will be published with the list. */
  message = $state('');
  /** Is the list kept beyond this tab? */
  lasting = $state(true);
  #prefix = '';
  #written = new Map<string, string>();
  #stop: (() => void) | null = null;

  /** Starts with what this user left behind. */
  load(environment: string | null, user: string): void {
    const prefix = `tidegate.change:${encodeURIComponent(environment ?? '')}:${encodeURIComponent(user)}:`;
    if (prefix === this.#prefix) return;
    this.leave();
    this.#prefix = prefix;
    this.entries = keys(prefix).flatMap((key) => {
      const text = read(key) ?? '';
      const entry = parseEntry(text);
      if (entry) this.#written.set(key, text);
      return entry ? [entry] : [];
    });
    this.message = read(prefix + MESSAGE) ?? '';
    this.#written.set(prefix + MESSAGE, this.message);
    addEventListener('storage', this.#fromOtherTab);
    this.#stop = $effect.root(() => {
      $effect(() => this.#keep());
    });
  }

  /** Forgets the list in this tab; what is kept stays kept. */
  leave(): void {
    this.#stop?.();
    this.#stop = null;
    removeEventListener('storage', this.#fromOtherTab);
    this.entries = [];
    this.message = '';
    this.#written.clear();
    this.#prefix = '';
  }

  find(kind: Kind, domain: string, id: string): Entry | undefined {
    return this.entries.find((entry) => entry.kind === kind && entry.domain === domain && entry.id === id);
  }

  /** The entry of an object that is about to be edited, on top of what the server has now. */
  open<K extends Kind>(kind: K, domain: string, item: Item<Objects[K]>, version: number): Entry {
    const key = { kind, domain, id: item.id };
    const present = this.find(kind, domain, item.id);
    if (present) this.set(present, rebase(present, item, item.changed_by, version));
    else this.entries.push(entryOf(key, item, version));
    return this.find(kind, domain, item.id) ?? entryOf(key, item, version);
  }

  /** An object that is to be new, in place of any change of one of that name. */
  create(kind: Kind, domain: string, id: string, form: Form, version: number): void {
    const present = this.find(kind, domain, id);
    if (present) this.drop(present);
    this.entries.push(newEntry({ kind, domain, id }, copyForm(form), version));
  }

  /** Takes an object out with the next version, whatever was edited of it. */
  delete<K extends Kind>(kind: K, domain: string, item: Item<Objects[K]>, version: number): void {
    const entry = this.open(kind, domain, item, version);
    this.set(entry, {
      ...entry,
      op: 'delete',
      form: copyForm(entry.base),
      clashes: [],
      taken: {},
      refused: {},
    });
  }

  /** An entry in which nothing was changed is not worth keeping. */
  close(entry: Entry): void {
    if (!isChanged(entry)) this.drop(entry);
  }

  set(entry: Entry, next: Entry): void {
    Object.assign(entry, next);
  }

  drop(entry: Entry): void {
    this.entries = this.entries.filter((other) => nameOf(other) !== nameOf(entry));
    this.#forget(this.#prefix + nameOf(entry));
  }

  clear(): void {
    for (const entry of this.entries) this.#forget(this.#prefix + nameOf(entry));
    this.entries = [];
    this.message = '';
    this.#forget(this.#prefix + MESSAGE);
  }

  #keep(): void {
    this.#keepMessage(this.#prefix + MESSAGE);
    for (const entry of this.entries) {
      const key = this.#prefix + nameOf(entry);
      const text = JSON.stringify(entry);
      if (!isChanged(entry)) this.#forget(key);
      else if (this.#written.get(key) !== text) {
        this.#written.set(key, text);
        this.lasting = write(key, text);
      }
    }
  }

  /** Only what was typed here: another tab may have a message where this one has none. */
  #keepMessage(key: string): void {
    if ((this.#written.get(key) ?? '') === this.message) return;
    this.#forget(key);
    if (this.message === '') return;
    this.#written.set(key, this.message);
    write(key, this.message);
  }

  #forget(key: string): void {
    this.#written.delete(key);
    remove(key);
  }

  #fromOtherTab = (event: StorageEvent): void => {
    if (event.key === null || !event.key.startsWith(this.#prefix)) return;
    const name = event.key.slice(this.#prefix.length);
    const here = this.entries.find((entry) => nameOf(entry) === name);
    const there = event.newValue === null ? null : parseEntry(event.newValue);
    if (there && event.newValue !== null) {
      this.#written.set(event.key, event.newValue);
      if (here) this.set(here, there);
      else this.entries.push(there);
    } else if (here?.op === 'create') {
      this.entries = this.entries.filter((entry) => entry !== here);
    } else if (here) {
      this.#written.delete(event.key);
      this.set(here, { ...here, op: 'put', form: $state.snapshot(here.base), clashes: [], refused: {} });
    }
  };
}

const rank = ({ kind }: Entry) => (kind === 'domain' ? 0 : 1);

export const changes = new Changes();
