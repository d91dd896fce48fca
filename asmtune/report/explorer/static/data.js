// The report as it stands in the page: columns of values, one a config.

import { NARROW } from "./dom.js";

/** What a block of the page holds, unpacked: JSON, deflated, in base64. */
export async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

const TITLES = {
  rank: "rank",
  fate: "verdict",
  predicted_us: "predicted µs",
  measured_us: "measured µs",
  measured_p90_us: "p90 µs",
  measured_p99_us: "p99 µs",
  measured_rsd: "RSD %",
  ratio: "pred / meas",
  bottleneck: "limit",
  score: "score",
  regs_per_thread: "regs",
  spill_words: "spills",
  shared_bytes: "shared B",
  occupancy: "occupancy",
  programs_per_sm: "prog / SM",
  reasons: "reasons",
};

const MEANINGS = {
  rank: "Place in the scorer's ranking; 1 is its favourite.",
  fate: "Kept to be timed, or why not: it cannot run, does not compile, or was ranked too low before or after compiling.",
  predicted_us: "Microseconds of the launch by the roofline.",
  measured_us: "Median microseconds of the launch, as they were timed.",
  measured_p90_us: "90th percentile of all samples.",
  measured_p99_us: "99th percentile of all samples.",
  measured_rsd: "Relative standard deviation of all samples, in percent.",
  ratio: "Predicted time over measured time.",
  bottleneck: "The largest part of the predicted time.",
  score: "The scorer's own scale; higher is better.",
  reasons: "Why it was dropped, and remarks.",
};

const TIMES = [
  "predicted_us", "measured_us", "measured_p90_us", "measured_p99_us", "measured_rsd", "ratio",
];

const STAGES = {
  rules: "cannot run",
  compile: "does not compile",
  estimate: "not sketched",
  sketch: "not compiled",
  score: "left out",
};

const REASONS = { rank: "ranked too low", sketched_only: "ranked too low", estimated_only: "ranked too low" };

/** The stage at which a config was dropped, and the reason, in words; the reason may be "". */
export function inWords(stage, reason) {
  const words = reason === stage ? "" : (REASONS[reason] ?? reason.replaceAll("_", " "));
  return [STAGES[stage] ?? stage, words];
}

/** One target's report. */
export class Report {
  constructor(values, { features, terms }, index) {
    Object.assign(this, values);
    this.index = index;
    this.features = features;
    this.terms = terms;
    // A name of a link or a search that every object knows, such as "constructor", is no column.
    this.columns = Object.assign(Object.create(null), this.columns);
    this.size = this.columns.kept.length;
    this.columns.fate = this.columns.kept.map((kept, row) => this.#fate(kept, row));
    if (this.measured) {
      const { predicted_us: predicted, measured_us: measured } = this.columns;
      this.columns.ratio = predicted.map((us, row) =>
        us === null || !measured[row] ? null : us / measured[row],
      );
    }
    this.order = this.measured ? "measured_us" : "rank"; // of the rows: the winner is the first
    this.names = this.#named();
  }

  #fate(kept, row) {
    const { dropped_at: stage, reason } = this.columns;
    if (kept) return "kept";
    return inWords(stage[row], reason[row]).filter(Boolean).join(": ");
  }

  /** Every config in words. */
  #named() {
    return this.columns.kept.map((_, row) =>
      this.axes
        .filter((axis) => this.columns[axis][row] !== null)
        .map((axis) => `${axis}=${this.columns[axis][row]}`)
        .join(" "),
    );
  }

  /** Axes with more than one value, or all where none has. */
  varying() {
    const found = this.axes.filter((axis) => new Set(this.columns[axis]).size > 1);
    return found.length ? found : this.axes;
  }

  /** Columns that the table shows unless told otherwise; on a phone the time and the axes. */
  usual() {
    if (matchMedia(NARROW).matches) {
      return [this.measured ? "measured_us" : "predicted_us", ...this.varying()];
    }
    const told = ["regs_per_thread", "spill_words", "shared_bytes", "occupancy", "programs_per_sm"];
    const times = this.measured ? TIMES : ["predicted_us"];
    const all = ["rank", "fate", ...this.varying(), ...times, "bottleneck", ...told];
    return all.filter((name) => this.columns[name]);
  }

  /** Every column that there is something in. */
  every() {
    const first = ["rank", "fate", ...this.axes, ...TIMES];
    const names = [...first, "bottleneck", "score", ...Object.keys(this.features), "reasons"];
    // An option such as num_warps is an axis and a feature, and one column.
    return [...new Set(names)].filter((name) => this.columns[name]);
  }

  /** Parts of the predicted time as `[name, meaning, microseconds]`, largest first; null if not known. */
  parts(row) {
    const known = Object.entries(this.terms).map(([name, meaning]) => [name, meaning, this.value(`${name}_us`, row)]);
    const parts = known.filter(([, , us]) => us > 0).sort((a, b) => b[2] - a[2]);
    return parts.length ? parts : null;
  }

  /** Why the page has no code of a config. */
  withoutCode(row) {
    const stage = this.columns.dropped_at[row];
    const isCompiled = !["rules", "estimate", "sketch", "compile"].includes(stage);
    return isCompiled ? this.code_note : `It was not compiled: ${this.columns.reasons[row] || stage}`;
  }

  value(name, row) {
    return this.columns[name]?.[row] ?? null;
  }

  title(name) {
    const isPart = this.features[name]?.[1] === "predicted time";
    return TITLES[name] ?? (isPart ? name.replace(/_us$/, " µs") : name);
  }

  meaning(name) {
    const [unit, , meaning] = this.features[name] ?? ["1", "", MEANINGS[name] ?? `Axis ${name}.`];
    return unit === "1" ? meaning : `${meaning} Unit: ${unit}.`;
  }

  /** The heading that a column is listed under. */
  group(name) {
    if (this.axes.includes(name)) return "axes";
    return this.features[name] ? this.features[name][1] : "verdict";
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
