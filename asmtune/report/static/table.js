// The table of configs: a grid with one row in focus, of which only what is in sight is drawn.

import { NARROW, byId, make, number } from "./dom.js";
import { VirtualList } from "./virtual.js";

const WIDEST = 44; // characters of a column
const HEADING = 0.9; // of a character: headings are smaller

/** Parts of a heading, which a phone puts into lines of their own. */
function broken(title) {
  return title.split(/(?<=_)|(?= )/);
}

export class Table {
  /** @param actions focus(row), sort(column) */
  constructor(actions) {
    this.actions = actions;
    this.grid = byId("grid");
    this.body = byId("grid-body");
    this.head = byId("grid-head");
    this.list = new VirtualList(this.grid, this.body, (place) => this.#row(place), this.head);
    this.place = 0; // of the row in focus, among those shown
    this.grid.addEventListener("keydown", (event) => this.#key(event));
    this.body.addEventListener("click", (event) => this.#click(event));
  }

  /** Shows rows of a report; the row in focus stays in focus where it is still there. */
  update(report, rows, state) {
    const before = this.report === report ? this.rows?.[this.place] : undefined;
    Object.assign(this, { report, rows, state });
    const known = (state.columns ?? []).filter((name) => report.columns[name]);
    this.columns = known.length ? known : report.usual();
    this.numeric = new Set(this.columns.filter((name) => report.isNumeric(name)));
    this.place = Math.max(0, rows.indexOf(before));
    this.#heading();
    this.grid.setAttribute("aria-rowcount", rows.length + 1);
    this.grid.setAttribute("aria-colcount", this.columns.length);
    this.grid.style.setProperty("--columns", this.#widths());
    this.list.reset(rows.length);
    this.#point();
  }

  focus() {
    this.grid.focus({ preventScroll: true });
  }

  /** The row in focus, or undefined. */
  get current() {
    return this.rows?.[this.place];
  }

  #widths() {
    // A sample tells the width of a column well enough, and its heading always fits.
    const step = Math.max(1, Math.floor(this.report.size / 400));
    const isNarrow = matchMedia(NARROW).matches;
    const padding = isNarrow ? 1.2 : 2.3;
    const widths = this.columns.map((name) => {
      const title = this.report.title(name);
      const lines = isNarrow ? broken(title).map((line) => line.trim().length) : [title.length];
      let widest = HEADING * Math.max(...lines) + (isNarrow ? 0 : 2);
      for (let row = 0; row < this.report.size; row += step) {
        widest = Math.max(widest, number(this.report.value(name, row)).length);
      }
      return `${Math.min(widest, WIDEST) + padding}ch`;
    });
    return widths.join(" ");
  }

  #heading() {
    const sort = this.state.sort ?? this.report.order;
    const down = sort.startsWith("-");
    const sorted = down ? sort.slice(1) : sort;
    const cells = this.columns.map((name, at) => {
      const order = name === sorted ? (down ? "descending" : "ascending") : "none";
      const button = make(
        "button",
        {
          type: "button",
          title: this.report.meaning(name),
          on: { click: () => this.actions.sort(name) },
        },
        ...broken(this.report.title(name)).flatMap((part, line) => (line ? [make("wbr"), part] : [part])),
      );
      return make(
        "div",
        {
          role: "columnheader",
          "aria-sort": order,
          "aria-colindex": at + 1,
          class: this.numeric.has(name) ? "cell number" : "cell",
        },
        button,
      );
    });
    this.head.replaceChildren(
      make("div", { role: "row", class: "row", "aria-rowindex": 1 }, ...cells),
    );
  }

  #row(place) {
    const { report } = this;
    const row = this.rows[place];
    const cells = this.columns.map((name, at) => this.#cell(name, row, at));
    const classes = ["row", report.columns.kept[row] ? "kept" : "dropped"];
    if (place === this.place) classes.push("current");
    return make(
      "div",
      {
        role: "row",
        id: `row-${place}`,
        class: classes.join(" "),
        "aria-rowindex": place + 2,
        "aria-selected": String(place === this.place),
        "data-place": place,
      },
      ...cells,
    );
  }

  #cell(name, row, at) {
    const text = number(this.report.value(name, row));
    const classes = ["cell"];
    if (this.numeric.has(name)) classes.push("number");
    if (name === "fate") classes.push("fate");
    if (name === "spill_words" && this.report.value(name, row) > 0) classes.push("warn");
    const title = text.length > WIDEST ? text : null;
    return make("div", { role: "gridcell", class: classes.join(" "), "aria-colindex": at + 1, title }, text);
  }

  #click(event) {
    const element = event.target.closest("[data-place]");
    if (!element) return;
    this.#move(Number(element.dataset.place));
  }

  #key(event) {
    if (event.target !== this.grid || event.ctrlKey || event.metaKey || event.altKey) return;
    const { page } = this.list;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    this.#move(this.place + steps[event.key]);
    event.preventDefault();
  }

  #move(place) {
    this.place = Math.max(0, Math.min(this.rows.length - 1, place));
    this.list.reveal(this.place);
    this.list.refresh();
    this.#point();
  }

  #point() {
    if (this.rows.length) this.grid.setAttribute("aria-activedescendant", `row-${this.place}`);
    else this.grid.removeAttribute("aria-activedescendant");
    this.actions.focus(this.current);
  }
}
