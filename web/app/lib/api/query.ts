/** A path with those parameters that say something. */
export function withQuery(path: string, parameters: Record<string, string | null>): string {
  const said = Object.entries(parameters).filter(
    (one): one is [string, string] => one[1] !== null && one[1] !== '',
  );
  return said.length === 0 ? path : `${path}?${new URLSearchParams(said).toString()}`;
}
