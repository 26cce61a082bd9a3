/** Draws the rates with uPlot: allowed solid, denied dashed, y from 0, 24 h times, colours of the theme in force. */
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { perSecond, type Zone } from '../format.ts';
import type { Columns } from '../live/series.ts';

export interface Reading {
  atMs: number;
  allowed: number;
  denied: number;
}

export interface Drawing {
  update(columns: Columns): void;
  zone(zone: Zone): void;
  destroy(): void;
}

const SHOWN_MAX_S = 900;
const SHOWN_MIN_S = 120;
const HEIGHT = 160;
const FONT = "12px system-ui, 'Liberation Sans', sans-serif";

/** The canvas takes plain colours only: each is looked up when it is drawn, so that it follows the theme. */
const token = (name: string) => () => getComputedStyle(document.documentElement).getPropertyValue(name);

export function drawRates(
  into: HTMLElement,
  columns: Columns,
  onRead: (reading: Reading | null) => void,
): Drawing {
  let zone: Zone = 'local';
  const line = { width: 1.5, points: { show: false }, spanGaps: false };
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
        x: { range: (self) => shown(self.data[0]) },
        y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] },
      },
      series: [{}, { ...line, stroke: token('--allow') }, { ...line, stroke: token('--deny'), dash: [5, 4] }],
      axes: [
        {
          ...axis,
          size: 24,
          space: 72,
          values: (_, times, __, ___, step) => times.map((at) => clockTime(at, step, zone)),
        },
        { ...axis, size: 56, values: (_, rates) => rates.map(perSecond) },
      ],
      hooks: { setCursor: [(self) => onRead(reading(self))] },
    },
    columns,
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
    update: (now) => plot.setData(now),
    zone(chosen) {
      zone = chosen;
      plot.redraw(false, true);
    },
    destroy() {
      resized.disconnect();
      plot.destroy();
    },
  };
}

function shown(times: ArrayLike<number>): [number, number] {
  const last = times[times.length - 1] ?? Date.now() / 1000;
  const known = last - (times[0] ?? last);
  return [last - Math.min(SHOWN_MAX_S, Math.max(SHOWN_MIN_S, known)), last];
}

function reading(plot: uPlot): Reading | null {
  const at = plot.cursor.idx;
  if (at === null || at === undefined || (plot.cursor.left ?? -1) < 0) return null;
  const [time, allowed, denied] = [plot.data[0][at], plot.data[1]?.[at], plot.data[2]?.[at]];
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
