/** Limits of waits. */

const isAlone = 'TIDEGATE_E2E_ALL' in process.env;

/**
 * Returns for how many milliseconds a test waits for what comes within `idle` on a machine that does nothing else: the run of
 * all tests holds the server to that, and any other run waits for a minute.
 */
export function within(idle: number): number {
  return isAlone ? idle : 60_000;
}
