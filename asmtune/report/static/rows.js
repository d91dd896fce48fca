// Which rows are shown, and in which order.

import { compareValues } from "./data.js";

const TERM = /^([^\s<>=!]+)(<=|>=|!=|=|<|>)(.+)$/;
const SHORT = {
  regs: "regs_per_thread",
  spills: "spill_words",
  shared: "shared_kib",
  predicted: "predicted_us",
  limit: "bottleneck",
  verdict: "fate",
};
const TESTS = {
  "=": (a, b) => a === b,
  "!=": (a, b) => a !== b,
  "<": (a, b) => a < b,
  ">": (a, b) => a > b,
  "<=": (a, b) => a <= b,
  ">=": (a, b) => a >= b,
};

/** The column that a word of a search names, or undefined. */
function columnOf(report, word) {
  const short = word.toLowerCase();
  const wanted = Object.hasOwn(SHORT, short) ? SHORT[short] : short;
  return Object.keys(report.columns).find((name) => name.toLowerCase() === wanted);
}

/** One term, such as `regs<=128` or `wgmma`, as a test of a row; throws where it means nothing. */
function parseTerm(report, term) {
  const match = TERM.exec(term);
  if (!match) {
    const wanted = term.toLowerCase();
    return (row) => report.searched[row].includes(wanted);
  }
  const [, word, sign, text] = match;
  const name = columnOf(report, word);
  if (name === undefined) throw new Error(`no column "${word}"`);
  const values = report.columns[name];
  if (report.isNumeric(name)) {
    const wanted = Number(text);
    if (Number.isNaN(wanted)) throw new Error(`"${text}" is no number`);
    return (row) => values[row] !== null && TESTS[sign](values[row], wanted);
  }
  if (sign !== "=" && sign !== "!=") throw new Error(`${word} is no number`);
  const wanted = text.toLowerCase();
  return (row) => String(values[row]).toLowerCase().includes(wanted) === (sign === "=");
}

/**
 * A search as a test of a row: words that must be there, `-word` that must not, `name<=number`.
 *
 * Throws an Error with a message where a term means nothing.
 */
export function parseQuery(report, query) {
  const { fate, bottleneck, reasons } = report.columns;
  report.searched ??= report.names.map((name, row) =>
    [name, fate[row], bottleneck[row], reasons[row]]
      .join(" ")
      .toLowerCase(),
  );
  const tests = query
    .split(/\s+/)
    .filter(Boolean)
    .map((term) => {
      if (!term.startsWith("-") || term.length === 1) return parseTerm(report, term);
      const test = parseTerm(report, term.slice(1));
      return (row) => !test(row);
    });
  return (row) => tests.every((test) => test(row));
}

/** Whether a row is what a drop-down list asks for. */
function fits(report, name, wanted, row) {
  const value = String(report.columns[name]?.[row] ?? "none");
  return name === "fate" && wanted === "dropped" ? value !== "kept" : value === wanted;
}

/** Rows that pass search and drop-down lists, in order. */
export function shownRows(report, { query, facets, sort }) {
  const test = parseQuery(report, query);
  const chosen = Object.entries(facets);
  const rows = [];
  for (let row = 0; row < report.size; row += 1) {
    if (test(row) && chosen.every(([name, wanted]) => fits(report, name, wanted, row))) {
      rows.push(row);
    }
  }
  return sorted(report, rows, sort ?? report.order);
}

/** Rows in the order of a column, down where its name follows a minus; equal ones stay as they are. */
function sorted(report, rows, sort) {
  const down = sort.startsWith("-");
  const values = report.columns[down ? sort.slice(1) : sort];
  if (values === undefined) return rows;
  return rows.sort((a, b) => {
    // What is not known comes last both ways.
    if (values[a] === null || values[b] === null) return compareValues(values[a], values[b]) || a - b;
    return (down ? compareValues(values[b], values[a]) : compareValues(values[a], values[b])) || a - b;
  });
}
