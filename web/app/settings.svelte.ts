/** What a person chose for this browser: theme, times, single-letter shortcuts. */
import { read, write } from './storage.ts';

export type Theme = 'system' | 'light' | 'dark';
export type Times = 'local' | 'utc';

const THEMES: Theme[] = ['system', 'light', 'dark'];

class Settings {
  theme = $state<Theme>(THEMES.find((theme) => theme === read('tidegate.theme')) ?? 'system');
  times = $state<Times>(read('tidegate.times') === 'utc' ? 'utc' : 'local');
  shortcuts = $state(read('tidegate.shortcuts') !== 'off');
  /** Counts the changes of colours, for what is drawn on a canvas. */
  repaints = $state(0);

  constructor() {
    this.#paint();
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => (this.repaints += 1));
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    write('tidegate.theme', theme);
    this.#paint();
  }

  setTimes(times: Times): void {
    this.times = times;
    write('tidegate.times', times);
  }

  setShortcuts(on: boolean): void {
    this.shortcuts = on;
    write('tidegate.shortcuts', on ? 'on' : 'off');
  }

  #paint(): void {
    if (this.theme === 'system') delete document.documentElement.dataset['theme'];
    else document.documentElement.dataset['theme'] = this.theme;
    this.repaints += 1;
  }
}

export const settings = new Settings();
