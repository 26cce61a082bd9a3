/**
 * Keeps a press of a button whole when the page moves under it. Text that arrives between press and release moves the
 * button away from the pointer, and the browser then sends no click. A captured pointer clicks the button it pressed.
 */

/** Farther than this, in pixels, the pointer has left: a press is taken back by dragging it off. */
const SLACK = 8;

export function keepPresses(): void {
  document.addEventListener('pointerdown', (press) => {
    const button = press.target instanceof Element ? press.target.closest('button, summary') : null;
    // A finger is captured by the browser itself.
    if (!button || press.pointerType === 'touch' || press.button !== 0) return;
    button.setPointerCapture(press.pointerId);
    const release = (move: PointerEvent) => {
      if (Math.hypot(move.clientX - press.clientX, move.clientY - press.clientY) <= SLACK) return;
      button.releasePointerCapture(press.pointerId);
    };
    const moves = new AbortController();
    button.addEventListener('pointermove', (move) => release(move as PointerEvent), { signal: moves.signal });
    button.addEventListener('lostpointercapture', () => moves.abort(), { once: true });
  });
}
