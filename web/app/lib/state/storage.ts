/** The browser's storage, which may be full, forbidden or cleared: then things last as long as the tab. */

const instead = new Map<string, string>();

export function read(key: string): string | null {
  try {
    return instead.get(key) ?? localStorage.getItem(key);
  } catch {
    return instead.get(key) ?? null;
  }
}

/** Is it kept beyond this tab? */
export function write(key: string, value: string): boolean {
  try {
    localStorage.setItem(key, value);
    instead.delete(key);
    return true;
  } catch {
    instead.set(key, value);
    return false;
  }
}

export function remove(key: string): void {
  instead.delete(key);
  try {
    localStorage.removeItem(key);
  } catch {
    // Nothing was kept there.
  }
}

export function keys(prefix: string): string[] {
  const found = new Set(instead.keys());
  try {
    for (let at = 0; at < localStorage.length; at += 1) found.add(localStorage.key(at) ?? '');
  } catch {
    // Only what this tab holds.
  }
  return [...found].filter((key) => key.startsWith(prefix));
}
