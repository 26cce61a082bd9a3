/** The address of the tab as reactive state, and functions that change it. */
import { withQuery } from '../api/query.ts';
import { routeOf, type Route } from './router.ts';

class Navigation {
  path = $state(location.pathname);
  query = $state.raw(new URLSearchParams(location.search));
  /** Counts the moves: a page that is opened by one takes the focus to its title. */
  moves = $state(0);
  route: Route = $derived(routeOf(this.path));

  listen(): void {
    addEventListener('popstate', () => this.#read());
    document.addEventListener('click', (event) => this.#follow(event));
  }

  go(address: string): void {
    history.pushState(null, '', address);
    this.#read();
    scrollTo(0, 0);
  }

  replace(address: string): void {
    history.replaceState(null, '', address);
    this.#read();
  }

  /** Sets or clears one part of the query without a step in the history. */
  setQuery(name: string, value: string): void {
    // Replaced as a whole, never changed once it is read.
    // eslint-disable-next-line svelte/prefer-svelte-reactivity
    const query = new URLSearchParams(this.query);
    if (value === '') query.delete(name);
    else query.set(name, value);
    const text = query.toString();
    history.replaceState(null, '', this.path + (text === '' ? '' : `?${text}`));
    this.query = query;
  }

  /** The same page in another place keeps the domain that is being looked at. */
  get domain(): string {
    return this.query.get('domain') ?? 'default';
  }

  /** A path of this site, in the domain that is being looked at; what is empty of a query is left out. */
  to(path: string, query: Record<string, string> = {}): string {
    return withQuery(path, { domain: this.domain === 'default' ? '' : this.domain, ...query });
  }

  #read(): void {
    if (location.pathname !== this.path) this.moves += 1;
    this.path = location.pathname;
    this.query = new URLSearchParams(location.search);
  }

  /** A plain click on a link of this site moves without loading the page anew. */
  #follow(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    if (!link || link.target !== '' || link.origin !== location.origin || link.hasAttribute('download'))
      return;
    if (link.hash !== '' && link.pathname === location.pathname) return;
    event.preventDefault();
    this.go(link.pathname + link.search + link.hash);
  }
}

export const navigation = new Navigation();
