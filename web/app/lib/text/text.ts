/** Every text of the dashboard; verbs on buttons, sentences without blame. */
export * as text from './all.ts';
