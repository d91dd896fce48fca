// One text beside others: lines with classes, marks that other panes share, keys.

import { make, number, percent } from "./dom.js";
import { LANGUAGES, parts } from "./listing.js";
import { VirtualList } from "./virtual.js";

export class Pane {
  /** @param actions select(name, line), hover(place) */
  constructor(name, actions) {
    Object.assign(this, { name, actions, listing: null, line: -1, marked: null, hovered: null });
    this.title = make("h3", { id: `pane-${name}-title` }, LANGUAGES[name]);
    this.facts = make("span", { class: "facts" });
    this.hotButton = make(
      "button",
      { type: "button", class: "small", on: { click: () => this.goHot() } },
      "Hot loop",
    );
    this.chips = make("div", { class: "chips" });
    this.body = make("div", { class: "lines" });
    this.box = make(
      "div",
      {
        class: "code",
        tabindex: 0,
        role: "listbox",
        "aria-labelledby": `pane-${name}-title`,
        on: { keydown: (event) => this.#key(event) },
      },
      this.body,
    );
    this.note = make("p", { class: "empty", hidden: true });
    this.root = make(
      "section",
      { class: `pane pane-${name}`, "aria-labelledby": `pane-${name}-title` },
      make("header", {}, this.title, this.facts, this.hotButton, this.chips),
      this.note,
      this.box,
    );
    this.list = new VirtualList(this.box, this.body, (line) => this.#row(line));
    this.body.addEventListener("click", (event) => this.#pointed(event, true));
    this.body.addEventListener("mouseover", (event) => this.#pointed(event, false));
    this.body.addEventListener("mouseleave", () => actions.hover(null));
  }

  /** Shows a text, or says why there is none. */
  load(listing, why) {
    Object.assign(this, { listing, line: -1, marked: null, hovered: null });
    this.note.hidden = listing !== null;
    this.note.textContent = why ?? "";
    this.box.hidden = listing === null;
    this.hotButton.hidden = !listing || listing.hotStart < 0;
    this.chips.replaceChildren(...(listing ? this.#chips() : []));
    this.facts.textContent = listing ? this.#facts() : "";
    this.box.scrollTop = 0;
    const digits = listing ? String(listing.number(listing.lines.length - 1) ?? 999).length : 3;
    this.box.style.setProperty("--digits", `${Math.max(3, digits)}ch`);
    const widest = listing ? Math.max(...listing.lines.map((line) => line.length)) : 0;
    this.box.style.setProperty("--widest", `${Math.min(widest, 400) + 16}ch`);
    this.list.reset(listing ? listing.lines.length : 0);
  }

  /** Marks the lines of a source place, and goes to the first of them if they are to be seen. */
  mark(place, reveal) {
    this.marked = place;
    this.list.refresh();
    if (!reveal || !this.listing || place === null) return;
    const { places, hot } = this.listing;
    const found = places.findIndex((own, line) => own === place && hot[line]);
    const first = found >= 0 ? found : places.indexOf(place);
    if (first >= 0) this.list.reveal(first, true);
  }

  /** Marks the lines of a place for as long as the pointer is on one of them. */
  hover(place) {
    this.hovered = place;
    for (const [line, row] of this.list.rows) {
      row.classList.toggle("hovered", place !== null && this.listing.places[line] === place);
    }
  }

  /** Puts a line in focus. */
  goTo(line) {
    if (!this.listing) return;
    this.line = Math.max(0, Math.min(this.listing.lines.length - 1, line));
    this.list.reveal(this.line, true);
    this.list.refresh();
    this.box.setAttribute("aria-activedescendant", `${this.name}-${this.line}`);
  }

  goHot() {
    if (!this.listing || this.listing.hotStart < 0) return;
    this.goTo(this.listing.hotStart);
    this.box.focus({ preventScroll: true });
    this.actions.select(this.name, this.line);
  }

  #facts() {
    const counted = [...this.listing.counts.values()].reduce((sum, { text }) => sum + text, 0);
    if (!counted) return "";
    return `${number(counted)} instructions`;
  }

  #chips() {
    const { counts } = this.listing;
    const all = [...counts.values()].reduce((sum, { run }) => sum + run, 0) || 1;
    const legend = make("span", { class: "facts" }, "Instructions in the text, and share of all that a thread runs:");
    const chips = [...counts].map(([group, { text, run }]) =>
      make(
        "button",
        {
          type: "button",
          class: `chip group-${group}`,
          title: `${group}: ${number(text)} in the text, ${number(run)} executed a thread (${percent(run / all)}). Go to the next.`,
          on: { click: () => this.#next(group) },
        },
        make("i", { "aria-hidden": "true" }),
        `${group}: `,
        make("b", {}, number(text)),
        make("span", { class: "share" }, `, ${percent(run / all)} run`),
      ),
    );
    return chips.length ? [legend, ...chips] : [];
  }

  #next(group) {
    const { groups } = this.listing;
    const after = groups.indexOf(group, this.line + 1);
    this.goTo(after >= 0 ? after : groups.indexOf(group));
    this.actions.select(this.name, this.line);
  }

  #row(line) {
    const { listing } = this;
    const place = listing.places[line];
    const classes = ["line"];
    if (listing.groups[line]) classes.push(`group-${listing.groups[line]}`);
    if (listing.hot[line]) classes.push("hot");
    if (line === this.line) classes.push("current");
    if (place !== null && place === this.marked) classes.push("marked");
    if (place !== null && place === this.hovered) classes.push("hovered");
    if (this.name === "source" && place === null) classes.push("file");
    const runs = listing.times[line];
    return make(
      "div",
      {
        class: classes.join(" "),
        role: "option",
        id: `${this.name}-${line}`,
        "aria-selected": String(line === this.line),
        "aria-setsize": listing.lines.length,
        "aria-posinset": line + 1,
        "data-line": line,
      },
      make("span", { class: "no" }, String(listing.number(line) ?? "")),
      this.#runs(line, runs),
      this.#text(line),
    );
  }

  /** How often a line of code runs, or how many instructions a line of source costs. */
  #runs(line, runs) {
    const isSource = this.name === "source";
    if (!runs || (!isSource && !this.listing.groups[line])) return make("span", { class: "runs" });
    const title = isSource
      ? `${number(runs)} instructions executed by a thread, of the PTX`
      : `executed ${number(runs)} times by a program`;
    return make("span", { class: "runs", title }, isSource ? number(runs) : `${number(runs)}×`);
  }

  #text(line) {
    const text = this.listing.lines[line].replaceAll("\t", "  ");
    if (!this.listing.groups[line]) return make("span", { class: "text" }, text);
    const [before, opcode, rest] = parts(text);
    return make("span", { class: "text" }, before, make("span", { class: "op" }, opcode), rest);
  }

  #pointed(event, chosen) {
    const row = event.target.closest("[data-line]");
    if (!row) return;
    const line = Number(row.dataset.line);
    if (chosen) {
      this.goTo(line);
      this.actions.select(this.name, line);
    } else {
      this.actions.hover(this.listing.places[line]);
    }
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.listing) return;
    const { page } = this.list;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) this.goTo(this.line + steps[event.key]);
    else if (event.key === "Enter" || event.key === " ") this.actions.select(this.name, this.line);
    else if (event.key === "h") this.goHot();
    else return;
    event.preventDefault();
  }
}
