/** What a person chose for this browser: theme, times, height of rows, single-letter shortcuts. */
import { read, write } from './storage.ts';

export type Theme = 'system' | 'light' | 'dark';
export type Times = 'local' | 'utc';
export type Density = 'compact' | 'comfortable';

const THEMES: Theme[] = ['system', 'light', 'dark'];

class Settings {
  theme = $state<Theme>(THEMES.find((theme) => theme === read('tidegate.theme')) ?? 'system');
  times = $state<Times>(read('tidegate.times') === 'utc' ? 'utc' : 'local');
  density = $state<Density>(read('tidegate.density') === 'comfortable' ? 'comfortable' : 'compact');
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

  setDensity(density: Density): void {
    this.density = density;
    write('tidegate.density', density);
    this.#paint();
  }

  setShortcuts(on: boolean): void {
    this.shortcuts = on;
    write('tidegate.shortcuts', on ? 'on' : 'off');
  }

  #paint(): void {
    if (this.theme === 'system') delete document.documentElement.dataset['theme'];
    else document.documentElement.dataset['theme'] = this.theme;
    document.documentElement.dataset['density'] = this.density;
    this.repaints += 1;
  }
}

export const settings = new Settings();
