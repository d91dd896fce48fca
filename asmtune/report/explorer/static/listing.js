// One text of a config as lines: class, source place, executions, hot loop.

export const GROUPS = ["tensor", "copy", "shared", "global", "barrier", "branch", "spill", "other"];
export const LANGUAGES = { source: "Source", ptx: "PTX", sass: "SASS" };

const LETTERS = "tcsgbjlo"; // of GROUPS, as the report packs them; a space is no instruction

/** PTX or SASS of one config. */
export class Listing {
  constructor(values) {
    this.lines = values.text.split("\n");
    this.groups = Array.from(values.groups, (letter) => GROUPS[LETTERS.indexOf(letter)] ?? null);
    this.places = values.at.map((at) => (at < 0 ? null : values.places[at].join(":")));
    this.times = values.times.map((at) => values.runs[at]);
    this.hot = new Uint8Array(this.lines.length);
    for (const [first, last] of values.hot) this.hot.fill(1, first, last + 1);
    this.counts = this.#counts();
  }

  get isMatched() {
    return this.places.some((place) => place !== null);
  }

  number(line) {
    return line + 1;
  }

  /** Instructions of each class: in the text, and by execution. */
  #counts() {
    const counts = new Map(GROUPS.map((group) => [group, { text: 0, run: 0 }]));
    this.groups.forEach((group, line) => {
      if (group === null) return;
      counts.get(group).text += 1;
      counts.get(group).run += this.times[line];
    });
    return new Map([...counts].filter(([, { text }]) => text > 0));
  }

  /** The first line that the hot loop has, or -1. */
  get hotStart() {
    return this.hot.indexOf(1);
  }
}

/** The kernel's source: pieces of files, and what the PTX makes of each line. */
export class SourceListing {
  constructor(pieces, listing) {
    this.lines = [];
    this.numbers = [];
    this.places = [];
    for (const { file, title, first, text } of pieces) {
      this.#add(title, null, null);
      text.split("\n").forEach((line, at) => this.#add(line, first + at, `${file}:${first + at}`));
    }
    this.groups = this.lines.map(() => null);
    this.times = this.lines.map(() => 0);
    this.hot = new Uint8Array(this.lines.length);
    this.counts = new Map();
    if (listing) this.#weigh(listing);
  }

  #add(line, number, place) {
    this.lines.push(line);
    this.numbers.push(number);
    this.places.push(place);
  }

  /** Instructions of each line by execution; a line is hot where one of them is. */
  #weigh(listing) {
    const at = new Map(this.places.map((place, line) => [place, line]));
    listing.places.forEach((place, line) => {
      const own = place === null ? undefined : at.get(place);
      if (own === undefined || listing.groups[line] === null) return;
      this.times[own] += listing.times[line];
      this.hot[own] |= listing.hot[line];
    });
  }

  get isMatched() {
    return true;
  }

  number(line) {
    return this.numbers[line];
  }

  get hotStart() {
    return this.hot.indexOf(1);
  }
}

const STATEMENT = /^(\s*(?:\/\*[0-9a-f]+\*\/\s*)?(?:@!?\S+\s+)?)([A-Za-z][\w.:]*)(.*)$/;

/** A line of code in three: what stands before the opcode, the opcode, and the rest. */
export function parts(line) {
  const match = STATEMENT.exec(line);
  return match ? match.slice(1) : [line, "", ""];
}

const REGISTERS = [
  [/\/\*[0-9a-f]+\*\//g, ""],
  [/%([a-z]+)\d+/g, "%$1"],
  [/\b(U?[RP])\d+\b/g, "$1"],
  [/\$L_*[\w$]*/g, "$L"],
  [/\.L_x?_?\d+/g, ".L"],
  [/\s+/g, " "],
];

/** A line without what only names: numbers of registers, labels, addresses. */
export function withoutNames(line) {
  return REGISTERS.reduce((text, [pattern, by]) => text.replace(pattern, by), line).trim();
}
