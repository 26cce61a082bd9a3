/** Whether one of these texts has what is typed into a list's filter, in capitals or not. */
export function matches(filter: string, ...texts: unknown[]): boolean {
  const wanted = filter.trim().toLowerCase();
  return texts.some((text) => typeof text === 'string' && text.toLowerCase().includes(wanted));
}
