/** Draws strips on a canvas: above the line what was allowed, below it what was denied, in buckets along the time. */

export interface Bar {
  /** Of the strip's length, from 0 to 1. */
  from: number;
  to: number;
  allowed: number;
  denied: number;
}

export interface Strip {
  x: number;
  y: number;
  width: number;
  height: number;
  bars: Bar[];
  scale: Scale;
}

/** The most that one bucket has, on each side of the line: strips of the same scale can be compared. */
export interface Scale {
  allowed: number;
  denied: number;
}

/** A bar that stands for something is seen. */
const LEAST_PX = 2;
const GAPS_FROM_PX = 4;

export function scaleOf(strips: Bar[][]): Scale {
  const bars = strips.flat();
  return { allowed: tallest(bars.map((bar) => bar.allowed)), denied: tallest(bars.map((bar) => bar.denied)) };
}

/** A burst does not flatten all others: what is taller than three times nearly all is cut off. */
function tallest(numbers: number[]): number {
  const seen = numbers.filter((number) => number > 0).sort((one, other) => one - other);
  const nearlyAll = seen[Math.floor((seen.length - 1) * 0.9)] ?? 0;
  return Math.min(seen.at(-1) ?? 0, 3 * nearlyAll);
}

export function drawStrips(canvas: HTMLCanvasElement, strips: Strip[]): void {
  const { clientWidth, clientHeight } = canvas;
  const context = canvas.getContext('2d');
  if (!context) return;
  canvas.width = Math.round(clientWidth * devicePixelRatio);
  canvas.height = Math.round(clientHeight * devicePixelRatio);
  context.scale(devicePixelRatio, devicePixelRatio);
  const style = getComputedStyle(document.documentElement);
  const [allow, deny, line] = ['--allow', '--deny', '--control'].map((name) => style.getPropertyValue(name));
  for (const strip of strips) {
    const { scale } = strip;
    const all = Math.max(1, scale.allowed + scale.denied);
    const usable = strip.height - 1 - 2 * LEAST_PX;
    const above = Math.round(LEAST_PX + (usable * scale.allowed) / all);
    const middle = strip.y + above;
    const tall = (number: number, most: number) =>
      number === 0 ? 0 : Math.max(LEAST_PX, Math.round((usable * Math.min(number, most)) / all));
    for (const bar of strip.bars) {
      const from = strip.x + Math.round(bar.from * strip.width);
      const wide = Math.max(1, strip.x + Math.round(bar.to * strip.width) - from);
      const ink = (bar.to - bar.from) * strip.width >= GAPS_FROM_PX ? wide - 1 : wide;
      context.fillStyle = allow ?? '';
      const up = tall(bar.allowed, scale.allowed);
      context.fillRect(from, middle - up, ink, up);
      context.fillStyle = deny ?? '';
      context.fillRect(from, middle + 1, ink, tall(bar.denied, scale.denied));
    }
    context.fillStyle = line ?? '';
    context.fillRect(strip.x, middle, strip.width, 1);
  }
}
