/** The name of a browser by its user agent; null if it is unknown. */

const BROWSERS: [pattern: RegExp, name: string][] = [
  [/\bEdgA?\/(\d+)/, 'Edge'],
  [/\bOPR\/(\d+)/, 'Opera'],
  [/\bFirefox\/(\d+)/, 'Firefox'],
  [/\b(?:Headless)?Chrom(?:e|ium)\/(\d+)/, 'Chrome'],
  [/\bVersion\/(\d+)\S* (?:Mobile\/\S+ )?Safari\//, 'Safari'],
  [/^curl\/(\d+)/, 'curl'],
];
const SYSTEMS: [pattern: RegExp, name: string][] = [
  [/Android/, 'Android'],
  [/iPhone|iPad/, 'iOS'],
  [/Windows/, 'Windows'],
  [/Mac OS X/, 'macOS'],
  [/Linux/, 'Linux'],
];

export interface BrowserName {
  browser: string;
  system: string | null;
}

export function browserName(said: string): BrowserName | null {
  for (const [pattern, name] of BROWSERS) {
    const version = pattern.exec(said)?.[1];
    if (version === undefined) continue;
    const system = SYSTEMS.find(([known]) => known.test(said))?.[1] ?? null;
    return { browser: `${name} ${version}`, system };
  }
  return null;
}
