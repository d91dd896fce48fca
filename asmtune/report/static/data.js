// The report as it stands in the page: columns of values, one a config.

import { NARROW } from "./dom.js";

/** What a block of the page holds, unpacked: JSON, deflated, in base64. */
export async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** One target's report. */
export class Report {
  constructor(values, { columns, usual, terms }, index) {
    Object.assign(this, values);
    Object.assign(this, { index, terms, described: columns, usualNames: usual });
    // A name of a link or a search that every object knows, such as "constructor", is no column.
    this.columns = Object.assign(Object.create(null), this.columns);
    this.size = this.columns.kept.length;
    this.order = "rank"; // of the rows: the winner is the first
    this.names = this.columns.kept.map((_, row) => this.#named(row));
  }

  /** A config in words. */
  #named(row) {
    return this.axes
      .filter((axis) => this.columns[axis][row] !== null)
      .map((axis) => `${axis}=${this.columns[axis][row]}`)
      .join(" ");
  }

  /** Axes with more than one value, or all where none has. */
  varying() {
    const found = this.axes.filter((axis) => new Set(this.columns[axis]).size > 1);
    return found.length ? found : this.axes;
  }

  /** Columns that the table shows unless told otherwise; on a phone the time and the axes. */
  usual() {
    if (matchMedia(NARROW).matches) {
      return ["predicted_us", ...this.varying()];
    }
    const [rank, fate, ...others] = this.usualNames;
    return [rank, fate, ...this.varying(), ...others].filter((name) => this.columns[name]);
  }

  /** Every column that there is something in. */
  every() {
    const { described } = this;
    const own = Object.keys(described).filter((name) => described[name][2] === "verdict");
    const names = [...own, ...this.axes, ...Object.keys(described)];
    // An option such as num_warps is an axis and a feature, and one column.
    return [...new Set(names)].filter((name) => this.columns[name]);
  }

  /** Parts of the predicted time as `[name, meaning, microseconds]`, largest first. */
  parts(row) {
    const known = Object.entries(this.terms).map(([name, meaning]) => [name, meaning, this.value(`${name}_us`, row)]);
    return known.filter(([, , us]) => us > 0).sort((a, b) => b[2] - a[2]);
  }

  value(name, row) {
    return this.columns[name]?.[row] ?? null;
  }

  title(name) {
    return this.axes.includes(name) ? name : (this.described[name]?.[0] ?? name);
  }

  meaning(name) {
    return this.axes.includes(name) ? `Axis ${name}.` : (this.described[name]?.[1] ?? "");
  }

  /** The heading that a column is listed under. */
  group(name) {
    return this.axes.includes(name) ? "axes" : this.described[name][2];
  }

  /** Whether a column is of numbers. */
  isNumeric(name) {
    return this.columns[name].some((value) => typeof value === "number");
  }

  /** Different values of a column, in order. */
  values(name) {
    return [...new Set(this.columns[name])].sort(compareValues);
  }
}

/** Orders numbers as such and words by the alphabet; what is not known comes last. */
export function compareValues(a, b) {
  if (a === b) return 0;
  if (a === null) return 1;
  if (b === null) return -1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}
