// The code of one config: source, PTX and SASS side by side, matched by their source places.

import { byId, make, number, percent, show } from "./dom.js";
import { LANGUAGES, Listing, SourceListing } from "./listing.js";
import { Pane } from "./pane.js";

const NAMES = ["source", "ptx", "sass"];
const FACTS = [
  "predicted_us", "measured_us", "bottleneck", "regs_per_thread", "spill_words", "shared_bytes",
  "occupancy", "programs_per_sm", "trips",
]; // prettier-ignore

export class CodeView {
  /** @param actions change(values) */
  constructor(actions) {
    this.actions = actions;
    this.root = byId("code");
    this.panes = new Map(
      NAMES.map((name) => [
        name,
        new Pane(name, {
          select: (from, line) => this.#select(from, line),
          hover: (place) => this.#hover(place),
        }),
      ]),
    );
    byId("panes").replaceChildren(...[...this.panes.values()].map((pane) => pane.root));
  }

  /** Shows a config's code; `codes` gives it, `state` says which line is selected. */
  async open(report, row, codes, state) {
    const key = `${report.index}.${row}`;
    if (this.key !== key) {
      this.key = key;
      byId("code-title").textContent = report.names[row];
      byId("code-facts").replaceChildren(...facts(report, row));
      byId("code-parts").replaceChildren(...partsTable(report, row));
      byId("code-reasons").textContent = report.columns.reasons[row];
      byId("code-failure").textContent = report.failures[row] ?? "";
      show(byId("code-failure"), row in report.failures);
      const code = await codes.of(report, row);
      if (this.key !== key) return;
      this.#load(report, row, code);
    }
    this.#toggles(state.panes);
    this.#restore(state.at);
  }

  #load(report, row, code) {
    const listings = { ptx: null, sass: null };
    for (const name of ["ptx", "sass"]) if (code?.[name]) listings[name] = new Listing(code[name]);
    const pieces = code?.sources ?? [];
    const source = pieces.length ? new SourceListing(pieces, listings.ptx ?? listings.sass) : null;
    const why = code === null ? report.withoutCode(row) : null;
    this.panes.get("ptx").title.textContent = code?.language ?? LANGUAGES.ptx;
    this.panes.get("ptx").load(listings.ptx, why ?? code?.missing?.ptx ?? "There is no PTX.");
    this.panes.get("sass").load(listings.sass, why ?? code?.missing?.sass ?? "There is no SASS.");
    byId("code-why").textContent = (code?.why ?? []).join("\n");
    show(byId("code-why"), Boolean(code?.why?.length));
    const any = listings.ptx ?? listings.sass;
    const unmatched = any !== null && !any.isMatched;
    const lost = unmatched ? "Nothing says which source it comes from." : "The source of the kernel was not found.";
    this.panes.get("source").load(source, why ?? lost);
    show(byId("code-unmatched"), unmatched);
    for (const pane of this.panes.values()) {
      if (pane.listing?.hotStart > 0) pane.list.top(pane.listing.hotStart - 3);
    }
    const first = this.panes.get("ptx");
    if (first.listing) first.line = Math.max(0, first.listing.hotStart);
  }

  #toggles(chosen) {
    const shown = chosen ?? NAMES;
    const buttons = [...this.panes].map(([name, pane]) => {
      const on = shown.includes(name);
      pane.root.classList.toggle("off", !on);
      const next = on ? shown.filter((other) => other !== name) : [...shown, name];
      return make(
        "button",
        {
          type: "button",
          "aria-pressed": String(on),
          on: { click: () => this.actions.change({ panes: next.length ? next : [name] }) },
        },
        pane.title.textContent,
      );
    });
    const focused = byId("pane-toggles").contains(document.activeElement)
      ? [...byId("pane-toggles").children].indexOf(document.activeElement)
      : -1;
    byId("pane-toggles").replaceChildren(...buttons);
    if (focused >= 0) buttons[focused].focus();
    byId("panes").style.setProperty("--panes", shown.length);
    for (const pane of this.panes.values()) pane.list.draw();
  }

  #restore(at) {
    if (at === this.at && at !== null) return;
    this.at = at;
    const [name, line] = (at ?? "").split(":");
    const pane = this.panes.get(name);
    const known = pane?.listing && Number(line) < pane.listing.lines.length;
    if (known) pane.goTo(Number(line));
    this.#mark(known ? pane.listing.places[Number(line)] : null, known ? pane : null);
  }

  #select(name, line) {
    this.at = `${name}:${line}`;
    const pane = this.panes.get(name);
    this.#mark(pane.listing.places[line], pane);
    this.actions.change({ at: this.at });
  }

  #mark(place, from) {
    for (const pane of this.panes.values()) pane.mark(place, pane !== from);
  }

  #hover(place) {
    for (const pane of this.panes.values()) if (pane.listing) pane.hover(place);
  }
}

/** The predicted time as a table of its parts, which sum to it; a note where they are not known. */
function partsTable(report, row) {
  const total = report.value("predicted_us", row);
  if (total === null) return [];
  const known = report.parts(row);
  if (known === null) return ["Which limits the predicted time is made of is not known: an older version saved this report."];
  const all = [["all", "the sum", total], ...known];
  const cells = (tag, text) => all.map(([name, meaning, us]) => make(tag, tag === "th" ? { scope: "col" } : {}, text(name, meaning, us)));
  const line = (heading, ...children) => make("tr", {}, make("th", { scope: "row" }, heading), ...children);
  return [
    make("table", { class: "parts" },
      make("caption", { class: "sr" }, "Predicted time by limit"),
      line("limit", ...cells("th", (name) => name)),
      line("is", ...cells("td", (_, meaning) => meaning)),
      line("µs", ...cells("td", (_, meaning, us) => us.toFixed(2))),
      line("share", ...cells("td", (_, meaning, us) => percent(us / total))),
    ),
  ];
}

/** What is known of a config, as pairs of a term and its value. */
export function facts(report, row) {
  const fate = make("div", { class: report.columns.kept[row] ? "fact kept" : "fact" });
  const rank = report.value("rank", row);
  fate.append(
    make("dt", {}, rank === null ? "not ranked" : `rank ${rank}`),
    make("dd", {}, report.columns.fate[row]),
  );
  const known = FACTS.filter((name) => report.value(name, row) !== null);
  return [
    fate,
    ...known.map((name) =>
      make(
        "div",
        { class: "fact", title: report.meaning(name) },
        make("dt", {}, report.title(name)),
        make("dd", {}, number(report.value(name, row))),
      ),
    ),
  ];
}
