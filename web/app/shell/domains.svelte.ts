/** The policy's domains, as far as a page has heard of them. */

class Domains {
  names = $state<string[]>([]);

  learn(names: string[]): void {
    this.names = names;
  }
}

export const domains = new Domains();
