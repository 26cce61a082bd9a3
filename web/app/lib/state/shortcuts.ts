/** Keys of every page. Single letters work only outside fields and dialogs, and can be switched off. */
import { focusSoon } from '../dom/focus.ts';
import { live } from './live/live.svelte.ts';
import { navigation } from './navigation.svelte.ts';
import { overlay } from './overlay.svelte.ts';
import { routeOf } from './router.ts';
import { settings } from './settings.svelte.ts';

const PAGES: Record<string, string> = {
  o: '/',
  i: '/inspect',
  n: '/nodes',
  t: '/tiers',
  r: '/rules',
  c: '/clients',
  s: '/simulate',
  h: '/history',
  a: '/access/users',
};
const SECOND_KEY_MS = 1_500;
/** Pages whose object can be edited. */
const EDITORS = ['tier', 'rule', 'client'];
const FIELD = 'main :is(input, select, textarea)[id^="field-"]:enabled';

let mainAction: (() => void) | null = null;
let pageKeys: Record<string, () => void> = {};
let waitingSince: number | null = null;

/** The page's main action, on Ctrl Enter. Answers how to take it back. */
export function onMainAction(action: () => void): () => void {
  mainAction = action;
  return () => {
    if (mainAction === action) mainAction = null;
  };
}

/** Single letters of the page that is open. Answers how to take them back. */
export function onPageKeys(keys: Record<string, () => void>): () => void {
  pageKeys = keys;
  return () => {
    if (pageKeys === keys) pageKeys = {};
  };
}

export function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || document.querySelector('dialog[open]')) return;
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
    if (mainAction) event.preventDefault();
    mainAction?.();
    return;
  }
  if (event.key.toLowerCase() === 'k' && (event.ctrlKey || event.metaKey) && !event.shiftKey) {
    event.preventDefault();
    overlay.show('find');
    return;
  }
  const target = event.target instanceof HTMLElement ? event.target : null;
  if (target?.matches('input, select, textarea, [contenteditable]')) {
    if (event.key === 'Escape') target.blur();
    return;
  }
  if (!settings.shortcuts || event.ctrlKey || event.metaKey || event.altKey) return;
  const second = waitingSince !== null && event.timeStamp - waitingSince < SECOND_KEY_MS;
  waitingSince = null;
  if (second) {
    const path = PAGES[event.key];
    if (path !== undefined) navigation.go(navigation.to(path));
  } else if (event.key === 'g') {
    waitingSince = event.timeStamp;
  } else if (event.key === '?') {
    overlay.show('keys');
  } else if (event.key === '.') {
    if (live.held) live.goOn();
    else live.hold();
  } else if (event.key === 'e') {
    event.preventDefault();
    edit();
  } else if (event.key === '/') {
    const filter = document.querySelector<HTMLInputElement>('[data-filter]');
    if (filter) event.preventDefault();
    filter?.select();
  } else if (pageKeys[event.key]) {
    event.preventDefault();
    pageKeys[event.key]?.();
  }
}

/** Goes to the first field of the page, or of the row that one is in once its page is open. */
function edit(): void {
  const link = document.activeElement?.closest('tbody tr')?.querySelector('a');
  if (link && EDITORS.includes(routeOf(link.pathname).page)) link.click();
  focusSoon(() => document.querySelector<HTMLElement>(FIELD));
}
