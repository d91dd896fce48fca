// Two configs beside each other: the numbers that differ, and the instructions that do.

import { facts } from "./code.js";
import { byId, make, number, show } from "./dom.js";
import { LANGUAGES, Listing, parts, withoutNames } from "./listing.js";
import { VirtualList } from "./virtual.js";

const PATIENCE = 4000; // ms that aligning two texts may take

export class CompareView {
  /** @param actions change(values) */
  constructor(actions) {
    this.body = byId("diff-lines");
    this.box = byId("diff");
    this.rows = [];
    this.list = new VirtualList(this.box, this.body, (at) => this.#row(at));
    for (const [id, name] of [["diff-language", "language"], ["diff-scope", "scope"]]) {
      byId(id).addEventListener("change", (event) => actions.change({ [name]: event.target.value }));
    }
    byId("diff-strict").addEventListener("change", (event) =>
      actions.change({ strict: event.target.checked }),
    );
    byId("diff-next").addEventListener("click", () => this.next(1));
    byId("diff-previous").addEventListener("click", () => this.next(-1));
    this.box.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Shows two configs, each `{report, row}`. */
  async open(pair, codes, state) {
    const key = JSON.stringify([pair.map(({ report, row }) => [report.index, row]), state.language, state.scope, state.strict]);
    if (this.key === key) return;
    this.key = key;
    this.strict = state.strict;
    byId("diff-language").value = state.language;
    byId("diff-scope").value = state.scope;
    byId("diff-strict").checked = state.strict;
    for (const [at, { report, row }] of pair.entries()) {
      const several = pair[0].report !== pair[1].report;
      byId(`side-${at}`).textContent = several ? `${report.label}: ${report.names[row]}` : report.names[row];
      byId(`side-${at}-facts`).replaceChildren(...facts(report, row));
    }
    this.#numbers(pair);
    const loaded = await Promise.all(pair.map(({ report, row }) => codes.of(report, row)));
    if (this.key === key) this.#code(pair, loaded, state);
  }

  /** Goes to the next place that differs, or to the one before. */
  next(step) {
    const top = Math.round(this.box.scrollTop / this.list.height);
    const starts = this.rows.flatMap((row, at) => (row.changed && !this.rows[at - 1]?.changed ? [at] : []));
    const found =
      step > 0 ? starts.find((at) => at > top + 2) : starts.findLast((at) => at < top + 2);
    if (found !== undefined) this.box.scrollTop = Math.max(0, (found - 2) * this.list.height);
  }

  #key(event) {
    if (event.key === "n") this.next(1);
    else if (event.key === "p") this.next(-1);
  }

  /** The columns that differ, largest ratio first; words before numbers. */
  #numbers([a, b]) {
    const names = [...new Set([...a.report.every(), ...b.report.every()])].filter((name) => name !== "reasons");
    const different = names
      .map((name) => ({ name, from: a.report.value(name, a.row), to: b.report.value(name, b.row) }))
      .filter(({ from, to }) => from !== to && !(from === null && to === null))
      .map((row) => ({ ...row, weight: weight(row) }))
      .sort((one, other) => other.weight - one.weight);
    const rows = different.map(({ name, from, to }) =>
      make(
        "tr",
        {},
        make("th", { scope: "row", title: a.report.meaning(name) }, ...breakable(a.report.title(name))),
        make("td", { class: "number" }, from === null ? "–" : number(from)),
        make("td", { class: "number" }, to === null ? "–" : number(to)),
        make("td", { class: "number muted" }, ratio(from, to)),
      ),
    );
    byId("differences").replaceChildren(...rows);
    byId("differences-count").textContent = `${rows.length} values differ`;
  }

  #code(pair, loaded, state) {
    const listings = loaded.map((code) => (code?.[state.language] ? new Listing(code[state.language]) : null));
    const missing = listings.findIndex((listing) => listing === null);
    this.rows = [];
    let told = "";
    if (missing >= 0) {
      const { report, row } = pair[missing];
      const why = loaded[missing]?.missing?.[state.language];
      told = `${report.names[row]}: ${why ?? report.withoutCode(row) ?? `there is no ${LANGUAGES[state.language]}`}`;
    } else {
      const aligned = align(listings, state);
      this.rows = aligned ?? [];
      if (aligned === null) told = "The two texts differ too much to be laid beside each other; compare the hot loops.";
      else if (!aligned.some(({ changed }) => changed)) told = "Nothing differs.";
    }
    byId("diff-note").textContent = told;
    show(byId("diff-note"), told !== "");
    show(this.box, this.rows.length > 0);
    const changed = this.rows.filter((row) => row.changed).length;
    const differ = `${number(changed)} of ${number(this.rows.length)} lines differ${loopless(listings, state)}`;
    byId("diff-count").textContent = this.rows.length ? differ : "";
    this.box.scrollTop = 0;
    this.list.reset(this.rows.length);
  }

  #row(at) {
    const { sides, changed } = this.rows[at];
    const kind = !changed ? "same" : sides[0] && sides[1] ? "changed" : sides[0] ? "removed" : "added";
    return make(
      "div",
      { class: `pair ${kind}`, role: "listitem" },
      ...sides.map((line, side) => this.#side(line, side, changed, sides[1 - side])),
    );
  }

  /** A line with what differs marked: in its opcode, then in its operands. */
  #marked(text, other) {
    const same = this.strict ? (a, b) => a === b : (a, b) => withoutNames(a) === withoutNames(b);
    const [before, opcode, rest] = parts(text);
    const [otherBefore, otherOpcode, otherRest] = parts(other);
    const name = make("span", { class: "op" }, ...words(opcode, otherOpcode, same));
    return [...words(before, otherBefore, same), name, ...words(rest, otherRest, same)];
  }

  #side(line, side, changed, other) {
    if (!line) return make("div", { class: "half blank" });
    const sign = changed ? (side === 0 ? "−" : "+") : "";
    const text = line.text.trim();
    const shown = changed && other ? this.#marked(text, other.text.trim()) : coloured(text);
    return make(
      "div",
      { class: `half line group-${line.group ?? "none"} ${line.hot ? "hot" : ""}`, title: text },
      make("span", { class: "no" }, String(line.number)),
      make("span", { class: "sign" }, sign),
      make("span", { class: "text" }, ...shown),
    );
  }
}

function weight({ from, to }) {
  if (typeof from !== "number" || typeof to !== "number") return Infinity;
  if (from === 0 || to === 0) return 50 + Math.log1p(Math.abs(from - to));
  return Math.abs(Math.log(Math.abs(to / from)));
}

/** A name that may go on in the next line after an underscore. */
function breakable(name) {
  return name.split(/(?<=_)/).flatMap((part) => [part, make("wbr")]);
}

function ratio(from, to) {
  if (typeof from !== "number" || typeof to !== "number" || from === 0 || to === 0) return "";
  const times = to / from;
  return `×${times.toFixed(Math.abs(times - 1) < 0.01 ? 4 : 2)}`;
}

/** Which side has no hot loop to compare, in words; nothing where all is compared. */
function loopless(listings, { scope }) {
  const lacks = listings.map((listing) => scope === "hot" && listing !== null && listing.hotStart < 0);
  if (lacks.every(Boolean)) return "; neither has a loop: all is shown";
  if (!lacks.some(Boolean)) return "";
  return `; the ${lacks[0] ? "left" : "right"} has no loop: all of it is shown`;
}

/** Instructions of a text, in the hot loop or in all of it. */
function instructions(listing, scope) {
  const all = listing.lines.map((text, at) => ({
    text,
    group: listing.groups[at],
    hot: listing.hot[at] === 1,
    number: at + 1,
  }));
  const hotOnly = scope === "hot" && listing.hotStart >= 0;
  return all.filter(({ group, hot }) => group !== null && (!hotOnly || hot));
}

/** Two texts as rows of `{sides, changed}`; null where that takes too long. */
function align(listings, { scope, strict }) {
  const [a, b] = listings.map((listing) => instructions(listing, scope));
  const key = strict ? (text) => text.replace(/\/\*[0-9a-f]+\*\//, "").trim() : withoutNames;
  const [from, to] = [a, b].map((lines) => lines.map(({ text }) => key(text)));
  const changes = Diff.diffArrays(from, to, { timeout: PATIENCE });
  if (!changes) return null;
  const rows = [];
  let [left, right] = [0, 0];
  let open = []; // lines that went and have no partner yet
  const close = () => {
    rows.push(...open.map((line) => ({ sides: [line, null], changed: true })));
    open = [];
  };
  for (const { added, removed, value } of changes) {
    if (removed) {
      close();
      open = a.slice(left, (left += value.length));
    } else if (added) {
      for (const line of b.slice(right, (right += value.length))) {
        rows.push({ sides: [open.shift() ?? null, line], changed: true });
      }
      close();
    } else {
      close();
      for (let i = 0; i < value.length; i += 1) {
        rows.push({ sides: [a[left++], b[right++]], changed: false });
      }
    }
  }
  close();
  return rows;
}

function coloured(text) {
  const [before, opcode, rest] = parts(text);
  return [before, make("span", { class: "op" }, opcode), rest];
}

/** Words of a line, those marked that the other side does not have. */
function words(text, other, same) {
  const split = (line) => line.split(/([\s,;.[\]{}]+)/);
  const options = { timeout: 50, comparator: same };
  const changes = Diff.diffArrays(split(other), split(text), options) ?? [{ value: [text] }];
  return changes
    .filter(({ removed }) => !removed)
    .map(({ added, value }) => (added ? make("mark", {}, value.join("")) : value.join("")));
}
