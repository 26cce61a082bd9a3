/** Starts the run and opens its page; if the input has faults, goes to the first field with one. */
import { tick } from 'svelte';
import { navigation } from '../../lib/state/navigation.svelte.ts';
import { runDraft } from './rundraft.svelte.ts';

export async function startRunAndOpen(): Promise<void> {
  const started = await runDraft.start();
  if (started) {
    navigation.go(navigation.to(`/simulate/${encodeURIComponent(started.id)}`));
    return;
  }
  await tick();
  document.querySelector<HTMLElement>('main [aria-invalid="true"]')?.focus();
}
