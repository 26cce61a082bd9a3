/** How long until something, on a clock that is read each second. */

/** `0:22`, `14:05`, `3 h 20 min`, `2 d 4 h`; null when it is over. */
export function countdown(ms: number): string | null {
  if (ms <= 0) return null;
  const seconds = Math.ceil(ms / 1000);
  if (seconds < 3_600) return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
  const hours = Math.floor(seconds / 3_600);
  if (hours < 48) return `${hours} h ${Math.floor((seconds % 3_600) / 60)} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}
