/** The time of day as reactive state: once a second for what goes stale, once a minute for ages. */

class Clock {
  second = $state(Date.now());
  minute = $state(Date.now());

  start(): void {
    setInterval(() => (this.second = Date.now()), 1_000);
    setInterval(() => (this.minute = Date.now()), 60_000);
  }
}

export const clock = new Clock();
