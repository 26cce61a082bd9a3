/** The description of a column of a `DataTable`. */
import type { Snippet } from 'svelte';

export interface Column<Row> {
  label: string;
  /** Shows the label to screen readers only. */
  isLabelHidden?: boolean;
  /** Explains the column in the header's title. */
  title?: string;
  /** Content of a cell: a text, or markup. */
  text?: (row: Row) => string | number;
  cell?: Snippet<[Row]>;
  /** Explains one cell in its title. */
  cellTitle?: (row: Row) => string | undefined;
  /** Aligns numbers and buttons at the right; `head` makes the cell the header of its row. */
  kind?: 'number' | 'mono' | 'action' | 'head';
  /** The window width, in pixels, under which the column goes under the name of its row. */
  hiddenBelow?: 600 | 900 | 1024 | 1200;
  /** The treatment of long texts: on one line, or broken anywhere. */
  wrap?: 'never' | 'anywhere';
  /** Cuts texts longer than this many pixels: in a wide and in a narrow window. */
  cut?: [wide: number, narrow: number];
  /** Width of the column in pixels: in a wide and in a narrow window. */
  width?: [wide: number, narrow: number];
  /** Marks the cell for tests. */
  figure?: string;
}
