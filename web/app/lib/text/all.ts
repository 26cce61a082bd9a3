/**
 * What every page says; all texts of the dashboard are in files of this folder, for translation later, and each comes with
 * the script that says it.
 */
export const product = 'tidegate';
export * from './shell.ts';
export * from './states.ts';
