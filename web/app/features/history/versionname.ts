/** Parses the names of versions in the audit log. */

/** The number in `version:129`; null of anything else. */
export function versionIn(name: string): number | null {
  const match = /^version:(\d+)$/.exec(name);
  return match ? Number(match[1]) : null;
}
