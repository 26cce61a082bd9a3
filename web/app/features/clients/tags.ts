/** Tags of clients as text: with spaces between them, as in a file of clients. */

export function tagsOf(typed: string): string[] {
  return typed.split(/\s+/).filter(Boolean);
}

/** Those of some clients, each once, in the order of letters. */
export function tagsOfAll(clients: { value: { tags?: string[] } }[]): string[] {
  return [...new Set(clients.flatMap(({ value }) => value.tags ?? []))].sort();
}
