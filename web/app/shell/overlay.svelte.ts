/** Which dialog stands over the page; at most one, besides the one that asks to sign in again. */

export type Overlay = 'publish' | 'keys' | 'find' | 'sign-out';

class Overlays {
  open = $state<Overlay | null>(null);

  show(what: Overlay): void {
    this.open = what;
  }

  close(): void {
    this.open = null;
  }
}

export const overlay = new Overlays();
