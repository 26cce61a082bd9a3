/** Draws rates, or another figure, with uPlot: the first solid, the second dashed, y from 0, 24 h times, colours of the theme in force. */
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { perSecond, type Zone } from '../format/format.ts';

/** Times in seconds, and one figure or two; null is a gap. */
export type RateColumns = [times: number[], ...figures: (number | null)[][]];

export interface RateReading {
  atMs: number;
  allowed: number;
  /** 0 where there is one figure only. */
  denied: number;
}

/** A moment that is told: a thin line from top to bottom. */
export interface Mark {
  atMs: number;
  label: string;
}

/** The input of one drawing. */
export interface RateChartData {
  columns: RateColumns;
  marks: Mark[];
  /** Start and end in seconds. */
  from: number;
  to: number;
}

export interface RateDrawing {
  update(shown: RateChartData): void;
  zone(zone: Zone): void;
  destroy(): void;
}

const HEIGHT = 160;
const FONT = "12px system-ui, 'Liberation Sans', sans-serif";
/** The pointer selects a mark within this distance. */
const NEAR_PX = 5;

/** The canvas takes plain colours only: each is looked up when it is drawn, so that it follows the theme. */
const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name);
const token = (name: string) => () => colour(name);

export function drawRates(
  into: HTMLElement,
  first: RateChartData,
  onRead: (reading: RateReading | null, mark: Mark | null) => void,
  words: (figure: number) => string = perSecond,
): RateDrawing {
  let zone: Zone = 'local';
  let shown = first;
  // Of one figure that is not known in each second, points stand alone.
  const isOne = first.columns.length === 2;
  const line = { width: 1.5, points: { show: isOne, size: 3, fill: token('--allow') }, spanGaps: false };
  const axis = {
    font: FONT,
    stroke: token('--fg-2'),
    grid: { stroke: token('--line'), width: 1 },
    ticks: { show: false },
  };
  const plot = new uPlot(
    {
      width: into.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      // At the right there is room for half a label.
      padding: [8, 28, 0, 0],
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
      scales: {
        x: { range: () => [shown.from, shown.to] },
        y: { range: (_, __, most) => [0, Math.max(2, most * 1.1)] },
      },
      series: [
        {},
        { ...line, stroke: token('--allow') },
        { ...line, stroke: token('--deny'), dash: [5, 4] },
      ].slice(0, first.columns.length),
      axes: [
        {
          ...axis,
          size: 24,
          space: 72,
          values: (_, times, __, ___, step) => times.map((at) => clockTime(at, step, zone)),
        },
        { ...axis, size: 56, values: (_, figures) => figures.map(words) },
      ],
      hooks: {
        setCursor: [(self) => onRead(reading(self), markAt(self, shown.marks))],
        draw: [(self) => drawMarks(self, shown.marks)],
      },
    },
    first.columns,
    into,
  );

  const resized = new ResizeObserver(() => plot.setSize({ width: into.clientWidth, height: HEIGHT }));
  resized.observe(into);

  function walk(event: KeyboardEvent): void {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const times = plot.data[0];
    if (by === undefined || times.length === 0) return;
    event.preventDefault();
    const at = Math.min(times.length - 1, Math.max(0, (plot.cursor.idx ?? times.length) + by));
    plot.setCursor({ left: plot.valToPos(times[at] ?? 0, 'x'), top: 0 });
  }
  function leave(): void {
    plot.setCursor({ left: -10, top: -10 });
  }
  into.addEventListener('keydown', walk);
  into.addEventListener('blur', leave);

  return {
    update(now) {
      shown = now;
      plot.setData(now.columns);
    },
    zone(chosen) {
      zone = chosen;
      plot.redraw(false, true);
    },
    destroy() {
      resized.disconnect();
      into.removeEventListener('keydown', walk);
      into.removeEventListener('blur', leave);
      plot.destroy();
    },
  };
}

function drawMarks(plot: uPlot, marks: Mark[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour('--base');
  ctx.fillStyle = colour('--fg-2');
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([]);
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = 'right';
  let labelled = -Infinity;
  for (const mark of inside(plot, marks)) {
    const x = Math.round(plot.valToPos(mark.atMs / 1000, 'x', true));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const width = ctx.measureText(mark.label).width + 8 * devicePixelRatio;
    if (x - width < Math.max(labelled, bbox.left)) continue;
    ctx.fillText(mark.label, x - 4 * devicePixelRatio, bbox.top + 10 * devicePixelRatio);
    labelled = x;
  }
  ctx.restore();
}

/** Returns the visible marks from left to right. */
function inside(plot: uPlot, marks: Mark[]): Mark[] {
  const { min = 0, max = 0 } = plot.scales['x'] ?? {};
  return marks
    .filter(({ atMs }) => atMs / 1000 >= (min ?? 0) && atMs / 1000 <= (max ?? 0))
    .sort((one, other) => one.atMs - other.atMs);
}

function markAt(plot: uPlot, marks: Mark[]): Mark | null {
  const left = plot.cursor.left ?? -1;
  if (left < 0) return null;
  const near = (mark: Mark) => Math.abs(plot.valToPos(mark.atMs / 1000, 'x') - left);
  const close = inside(plot, marks).filter((mark) => near(mark) <= NEAR_PX);
  return close.sort((one, other) => near(one) - near(other))[0] ?? null;
}

function reading(plot: uPlot): RateReading | null {
  const at = plot.cursor.idx;
  if (at === null || at === undefined || (plot.cursor.left ?? -1) < 0) return null;
  const [time, allowed, denied] = [plot.data[0][at], plot.data[1]?.[at], plot.data[2] ? plot.data[2][at] : 0];
  if (time === undefined || typeof allowed !== 'number' || typeof denied !== 'number') return null;
  return { atMs: time * 1000, allowed, denied };
}

/** `step` is what lies between two labels, in seconds. */
function clockTime(seconds: number, step: number, zone: Zone): string {
  const options: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' };
  if (step < 60) options.second = '2-digit';
  return new Intl.DateTimeFormat('en-GB', zone === 'utc' ? { ...options, timeZone: 'UTC' } : options).format(
    seconds * 1000,
  );
}
