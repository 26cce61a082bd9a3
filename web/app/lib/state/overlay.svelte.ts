/** Which dialog stands over the page; at most one, besides the one that asks to sign in again. */

export type Overlay = 'publish' | 'keys' | 'find' | 'roll-back' | 'sign-out';

class Overlays {
  /** Loads the script of a dialog that will probably be opened; set by the frame, which knows the scripts. */
  prefetch: (what: Overlay) => void = () => undefined;
  open = $state<Overlay | null>(null);
  /** What it is of, such as a version; empty where it is of nothing in particular. */
  id = $state('');

  show(what: Overlay, id = ''): void {
    this.open = what;
    this.id = id;
  }

  close(): void {
    this.open = null;
  }
}

export const overlay = new Overlays();
