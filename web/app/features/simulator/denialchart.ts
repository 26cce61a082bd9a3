/** Draws the denials of both policies with uPlot: A dashed in grey, B solid; dragging zooms, a click picks a bucket. */
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { perSecond } from '../../lib/format/format.ts';
import type { DenialColumns } from './denials.ts';
import { formatOffset, wholeSteps } from './durations.ts';

export interface DenialReading {
  atMs: number;
  a: number;
  b: number;
}

interface Hooks {
  onRead(reading: DenialReading | null): void;
  onPick(atMs: number): void;
  onZoom(range: [from: number, to: number]): void;
}

const HEIGHT = 160;
/** Room for the words of a tick. */
const TICK_WIDTH = 90;
const FONT = "12px system-ui, 'Liberation Sans', sans-serif";

/** Looked up when it is drawn, so that it follows the theme. */
const token = (name: string) => () => getComputedStyle(document.documentElement).getPropertyValue(name);

export function drawDenials(into: HTMLElement, columns: DenialColumns, beginMs: number, hooks: Hooks) {
  const paths = uPlot.paths.stepped?.({ align: 1 });
  const line = { width: 1.5, points: { show: false }, ...(paths ? { paths } : {}) };
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
      padding: [8, 28, 0, 0],
      cursor: { y: false, drag: { x: true, y: false }, points: { size: 6 } },
      scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] } },
      series: [{}, { ...line, stroke: token('--base'), dash: [5, 4] }, { ...line, stroke: token('--deny') }],
      axes: [
        {
          ...axis,
          size: 24,
          splits: (self, _, from, to) => wholeSteps(from, to, Math.floor(self.width / TICK_WIDTH)),
          values: (_, times) => times.map((at) => formatOffset(Math.round(at * 1000))),
        },
        { ...axis, size: 56, values: (_, rates) => rates.map(perSecond) },
      ],
      hooks: {
        setCursor: [(self) => hooks.onRead(reading(self, beginMs))],
        setSelect: [
          (self) => {
            const { left, width } = self.select;
            const at = (x: number) => beginMs + self.posToVal(x, 'x') * 1000;
            if (width > 0) hooks.onZoom([at(left), at(left + width)]);
          },
        ],
      },
    },
    columns,
    into,
  );
  const resized = new ResizeObserver(() => plot.setSize({ width: into.clientWidth, height: HEIGHT }));
  resized.observe(into);

  function pick(): void {
    const at = reading(plot, beginMs)?.atMs;
    if (at !== undefined) hooks.onPick(at);
  }
  function key(event: KeyboardEvent): void {
    const times = plot.data[0];
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === 'Enter' && !event.ctrlKey && !event.metaKey) {
      // What follows the key would be pressed where the focus goes.
      event.preventDefault();
      pick();
    }
    if (by === undefined || times.length === 0) return;
    event.preventDefault();
    const at = Math.min(times.length - 1, Math.max(0, (plot.cursor.idx ?? times.length) + by));
    plot.setCursor({ left: plot.valToPos(times[at] ?? 0, 'x'), top: 0 });
  }
  into.addEventListener('keydown', key);
  into.addEventListener('blur', () => plot.setCursor({ left: -10, top: -10 }));
  plot.over.addEventListener('click', pick);

  return {
    repaint: () => plot.redraw(false, true),
    /** Of the whole time when it is null. */
    show(range: [from: number, to: number] | null) {
      const times = plot.data[0];
      const [min, max] = range
        ? range.map((ms) => (ms - beginMs) / 1000)
        : [times[0], times[times.length - 1]];
      if (min !== undefined && max !== undefined)
        plot.setScale('x', { min, max: Math.max(max, min + 0.001) });
    },
    destroy() {
      resized.disconnect();
      plot.destroy();
    },
  };
}

function reading(plot: uPlot, beginMs: number): DenialReading | null {
  const at = plot.cursor.idx;
  if (at === null || at === undefined || (plot.cursor.left ?? -1) < 0) return null;
  const [time, a, b] = [plot.data[0][at], plot.data[1]?.[at], plot.data[2]?.[at]];
  if (time === undefined || typeof a !== 'number' || typeof b !== 'number') return null;
  return { atMs: beginMs + time * 1000, a, b };
}
