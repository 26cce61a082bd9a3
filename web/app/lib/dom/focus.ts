/** The focus goes to a field that its page may not have yet. */

/** The longest wait for a field. */
const FIELD_MS = 5_000;

export function focusSoon(find: () => HTMLElement | null): void {
  const until = performance.now() + FIELD_MS;
  /** A dialog that closes has given the focus back by the first look. */
  let from: Element | null | undefined;
  const look = () => {
    const active = document.activeElement;
    from ??= active;
    // The user has moved the focus meanwhile: it stays there.
    if (active !== from && active?.matches('input, select, textarea, dialog *')) return;
    const field = find();
    field?.closest('details')?.setAttribute('open', '');
    if (field) field.focus();
    else if (performance.now() < until) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}
