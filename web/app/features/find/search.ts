/** The search of the find box: groups in a fixed order, at most twelve lines, the closest match of each group first. */

export interface SearchResult {
  /** The group's name. */
  group: string;
  name: string;
  /** Beside the name. */
  note?: string;
  /** Where it leads, or what it does. */
  go: string | (() => void);
}

export interface SearchSource {
  group: string;
  items: Omit<SearchResult, 'group'>[];
  /** Already found by the server, or made of what was typed: all of them match. */
  found?: boolean;
}

export const LINES_MAX = 12;
const OF_GROUP_MAX = 4;

export function search(sources: SearchSource[], typed: string): SearchResult[] {
  const wanted = typed.trim().toLowerCase();
  const groups = sources.map(({ group, items, found }) => {
    const ranked = found === true ? items.map((item) => ({ item, rank: 0 })) : rank(items, wanted);
    return ranked.map(({ item }) => ({ group, ...item }));
  });
  // Each group gets its share first; what is left over goes to the first ones that have more.
  const taken = groups.map((group) => Math.min(group.length, OF_GROUP_MAX));
  let room = LINES_MAX;
  const lines = taken.map((want) => {
    const got = Math.min(want, room);
    room -= got;
    return got;
  });
  groups.forEach((group, at) => {
    const more = Math.min(room, group.length - (lines[at] ?? 0));
    lines[at] = (lines[at] ?? 0) + more;
    room -= more;
  });
  return groups.flatMap((group, at) => group.slice(0, lines[at]));
}

/** Those with the words in their name: at its beginning, at that of a word in it, elsewhere. */
function rank<Item extends { name: string }>(items: Item[], wanted: string): { item: Item; rank: number }[] {
  return items
    .map((item) => ({ item, rank: rankOf(item.name.toLowerCase(), wanted) }))
    .filter(({ rank: one }) => one < Infinity)
    .sort((one, other) => one.rank - other.rank);
}

function rankOf(name: string, wanted: string): number {
  const at = name.indexOf(wanted);
  if (at < 0) return Infinity;
  if (at === 0) return name === wanted ? 0 : 1;
  return /\W|_/.test(name[at - 1] ?? '') ? 2 : 3;
}

/** Is something called exactly so? */
export function isName(sources: SearchSource[], typed: string): boolean {
  const wanted = typed.trim().toLowerCase();
  return sources.some(({ items }) => items.some(({ name }) => name.toLowerCase() === wanted));
}

/** `v12` or `12` names a version that there is. */
export function versionOf(typed: string, newest: number): number | null {
  const match = /^v?(\d{1,9})$/i.exec(typed.trim());
  const version = Number(match?.[1] ?? 0);
  return version >= 1 && version <= newest ? version : null;
}
