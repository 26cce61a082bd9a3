/**
 * Leaving a field may bring up a message under it, which moves what is below. When it was left by pressing a button
 * there, the message has to wait until the press is over, or the button is no longer under the pointer.
 */

let pressed = false;
let waiting: (() => void)[] = [];

function release(): void {
  pressed = false;
  const ready = waiting;
  waiting = [];
  // The click comes right after the release.
  setTimeout(() => ready.forEach((action) => action()));
}

addEventListener('pointerdown', () => (pressed = true), { capture: true });
addEventListener('pointerup', release, { capture: true });
addEventListener('pointercancel', release, { capture: true });

/** Now, or when the pointer is released. */
export function afterPress(action: () => void): void {
  if (pressed) waiting.push(action);
  else action();
}
