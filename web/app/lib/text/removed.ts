/** Objects of the policy that a version took out. */

export const removed = {
  title: (what: string, version: number, by: string) => `${what} was deleted in v${version} by ${by}`,
  open: (version: number) => `Open v${version}`,
};
