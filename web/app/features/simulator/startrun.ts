/** Starts the run and goes to it; where something is wrong with the question, to the first field that is. */
import { tick } from 'svelte';
import { place } from '../../lib/state/navigation.svelte.ts';
import { asking } from './rundraft.svelte.ts';

export async function run(): Promise<void> {
  const started = await asking.start();
  if (started) {
    place.go(place.to(`/simulate/${encodeURIComponent(started.id)}`));
    return;
  }
  await tick();
  document.querySelector<HTMLElement>('main [aria-invalid="true"]')?.focus();
}
