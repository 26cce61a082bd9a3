/** Limits of waits. */

const isMeasured = 'TIDEGATE_E2E_ALL' in process.env;

/**
 * Returns for how many milliseconds a test waits for what comes within `idle` while the machine has little else to do: the
 * run of all tests holds the server to that, and any other run waits for a minute.
 */
export function within(idle: number): number {
  return isMeasured ? idle : 60_000;
}
