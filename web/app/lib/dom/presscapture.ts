/**
 * Keeps a press of a button whole when the page moves under it. Text that arrives between press and release moves the
 * button away from the pointer, and the browser then sends no click. A captured pointer clicks the button it pressed.
 */

/** A press is taken back by dragging it this far, in pixels, out of the place where the button was. */
const SLACK = 8;

export function keepPresses(): void {
  document.addEventListener('pointerdown', (press) => {
    const button = press.target instanceof Element ? press.target.closest('button, summary') : null;
    // A finger is captured by the browser itself.
    if (!button || press.pointerType === 'touch' || press.button !== 0) return;
    const { left, right, top, bottom } = button.getBoundingClientRect();
    const isInside = (at: number, from: number, to: number) => at >= from - SLACK && at <= to + SLACK;
    button.setPointerCapture(press.pointerId);
    const release = (move: PointerEvent) => {
      if (isInside(move.clientX, left, right) && isInside(move.clientY, top, bottom)) return;
      button.releasePointerCapture(press.pointerId);
    };
    const moves = new AbortController();
    button.addEventListener('pointermove', (move) => release(move as PointerEvent), { signal: moves.signal });
    button.addEventListener('lostpointercapture', () => moves.abort(), { once: true });
  });
}
