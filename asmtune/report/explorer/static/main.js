// The page: one state, shown by its views, kept in the link.

import { Chart } from "./chart.js";
import { Codes } from "./codes.js";
import { CodeView } from "./code.js";
import { CompareView } from "./compare.js";
import { csvText, save } from "./csv.js";
import { Report, unpack } from "./data.js";
import { NARROW, announce, byId, copyText, isTyping, make, number, show } from "./dom.js";
import { drawFunnel, drawTargets } from "./funnel.js";
import { drawColumns, drawFacets } from "./filters.js";
import { shownRows } from "./rows.js";
import { fromHash, parseId, toHash } from "./state.js";
import { Table } from "./table.js";

const QUIET = 150; // ms without a key after which a search is made
const COPIED = 1500; // ms for which a button says what became of a click

class Page {
  constructor(document_) {
    this.reports = document_.reports.map(
      (values, index) => new Report(values, document_, index),
    );
    this.codes = new Codes(document_.sources);
    this.table = new Table({
      open: (row) => this.openCode(row),
      pick: (row) => this.pick(row),
      sort: (name) => this.sort(name),
    });
    this.chart = new Chart({ open: (row) => this.openCode(row), axes: (values) => this.change(values) });
    const view = { change: (values) => this.change(values) };
    this.code = new CodeView(view);
    this.compare = new CompareView(view);
    this.#listen();
    this.restore();
  }

  get report() {
    return this.reports[this.state.target] ?? this.reports[0];
  }

  /** Takes on some values of the state; those that open another view can be gone back from. */
  change(values) {
    const from = this.state.view;
    this.state = { ...this.state, ...values };
    const hash = `#${toHash(this.state)}`;
    if (this.state.view === from) history.replaceState(null, "", hash);
    else history.pushState(null, "", hash);
    this.render(Object.keys(values));
  }

  /** Takes the state from the link. */
  restore() {
    this.state = fromHash(location.hash);
    if (!this.reports[this.state.target]) this.state.target = 0;
    byId("search").value = this.state.query;
    this.render(["target"]);
  }

  sort(name) {
    const sort = this.state.sort ?? this.report.order;
    this.change({ sort: sort === name ? `-${name}` : name });
  }

  openCode(row) {
    this.change({ view: "code", id: `${this.report.index}.${row}`, at: null });
  }

  pick(row) {
    const id = `${this.report.index}.${row}`;
    const { picked } = this.state;
    const without = picked.filter((other) => other !== id);
    const next = picked.includes(id) ? without : [...picked, id].slice(-2);
    this.change({ picked: next });
    announce(`${next.length} of 2 configs chosen to compare`);
  }

  /** Shows what has changed. */
  render(changed) {
    const { state } = this;
    const pair = state.picked.map((id) => parseId(id, this.reports)).filter(Boolean);
    const opened = state.view === "code" ? parseId(state.id, this.reports) : null;
    if (opened) state.target = opened.report.index;
    const view = opened ? "code" : state.view === "compare" && pair.length === 2 ? "compare" : "table";
    const switched = view !== this.shownView;
    for (const name of ["table", "code", "compare"]) show(byId(`${name}-view`), name === view);
    this.shownView = view;
    byId("compare").disabled = pair.length !== 2;
    byId("compare-count").textContent = `${pair.length}/2`;
    drawTargets(this.reports, this.report, (target) =>
      this.change({ view: "table", id: null, at: null, target, facets: {} }),
    );
    if (view === "table") this.#renderTable(changed, switched);
    if (view === "code") this.code.open(opened.report, opened.row, this.codes, state);
    if (view === "code") this.#picks(opened);
    if (view === "compare") this.compare.open(pair, this.codes, state);
    if (switched && view !== "table") byId(`${view}-title`).focus({ preventScroll: true });
  }

  #renderTable(changed, switched) {
    const { report, state } = this;
    const rowsMayDiffer = ["target", "query", "facets", "sort"].some((name) => changed.includes(name));
    if (rowsMayDiffer || this.found !== report) this.#find();
    const only = (names) => changed.every((name) => names.includes(name));
    if (!only(["picked", "x", "y", "log"]) || switched) this.#renderAround();
    if (!only(["x", "y", "log"]) || switched) this.table.update(report, this.rows, state);
    if (!only(["picked", "columns"]) || switched) this.chart.update(report, this.rows, state);
    byId("shown").textContent = `${number(this.rows.length)} of ${number(report.size)} configs`;
    if (switched && this.left !== undefined) {
      this.table.focusRow(this.left);
      this.table.focus();
    }
  }

  /** The rows to show; those of before where the search means nothing. */
  #find() {
    const { report, state } = this;
    let told = "";
    try {
      this.rows = shownRows(report, state);
    } catch (error) {
      told = error.message;
      if (this.found !== report) this.rows = shownRows(report, { ...state, query: "" });
    }
    this.found = report;
    byId("search-error").textContent = told;
  }

  #renderAround() {
    const { report, reports, state } = this;
    drawFunnel(reports, report, state.facets.fate ?? null, (fate) => this.#facet("fate", fate));
    drawFacets(report, state.facets, (name, value) => this.#facet(name, value));
    drawColumns(report, state.columns ?? report.usual(), (columns) => this.change({ columns }));
    byId("answer").textContent = report.headline;
    byId("guesses").replaceChildren(...report.guesses.map((line) => make("p", { class: "notice" }, line)));
    byId("notes").replaceChildren(...report.notes.map((line) => make("li", {}, line)));
  }

  #facet(name, value) {
    const facets = { ...this.state.facets };
    if (value === null) delete facets[name];
    else facets[name] = value;
    this.change({ facets });
  }

  /** The code view's button that chooses its config to be compared. */
  #picks({ report, row }) {
    const on = this.state.picked.includes(`${report.index}.${row}`);
    byId("code-pick").setAttribute("aria-pressed", String(on));
    this.left = row;
  }

  back() {
    if (this.shownView === "table") return;
    this.change({ view: "table", id: null, at: null });
  }

  /** Opens the config before or after, in the table's order. */
  step(by) {
    if (this.found !== this.report) this.#find(); // the link led past the table
    const at = this.rows.indexOf(parseId(this.state.id, this.reports)?.row);
    const next = this.rows[at + by];
    if (at >= 0 && next !== undefined) this.openCode(next);
  }

  #listen() {
    let waiting;
    byId("search").addEventListener("input", (event) => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.change({ query: event.target.value.trim() }), QUIET);
    });
    for (const button of document.querySelectorAll("[data-back]")) {
      button.addEventListener("click", () => this.back());
    }
    byId("clear").addEventListener("click", () => {
      byId("search").value = "";
      this.change({ query: "", facets: {} });
    });
    byId("compare").addEventListener("click", () => this.change({ view: "compare" }));
    byId("code-pick").addEventListener("click", () => this.pick(parseId(this.state.id, this.reports).row));
    byId("code-before").addEventListener("click", () => this.step(-1));
    byId("code-after").addEventListener("click", () => this.step(1));
    byId("export").addEventListener("click", () => this.#export());
    byId("copy").addEventListener("click", (event) => this.#copy(event.currentTarget, this.table.current));
    byId("code-copy").addEventListener("click", (event) =>
      this.#copy(event.currentTarget, parseId(this.state.id, this.reports).row),
    );
    matchMedia(NARROW).addEventListener("change", () => this.render(["columns"]));
    byId("help").addEventListener("click", () => byId("keys").showModal());
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // the address holds the view
      this.back();
      this.table.focus();
    });
    byId("theme").addEventListener("click", () => this.#theme());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.chart.redraw());
    window.addEventListener("popstate", () => this.restore());
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  #theme() {
    const root = document.documentElement;
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.theme = (root.dataset.theme ?? system) === "dark" ? "light" : "dark";
    this.chart.redraw();
  }

  /** Copies a row's config as Python, and says on the button whether that was allowed. */
  async #copy(button, row) {
    if (row === undefined) return;
    const done = await copyText(this.report.configs[row]);
    const told = button.textContent;
    button.textContent = done ? "Copied" : "The browser forbids it";
    button.disabled = true;
    announce(button.textContent);
    setTimeout(() => Object.assign(button, { textContent: told, disabled: false }), COPIED);
  }

  #export() {
    const { report } = this;
    const columns = this.state.columns ?? report.usual();
    save(`${report.kernel}-${report.target}.csv`.replaceAll(/[^\w.-]+/g, "_"), csvText(report, this.rows, columns));
    announce(`${this.rows.length} rows saved`);
  }

  #key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (byId("keys").open) return;
    if (event.key === "Escape" && !isTyping(event)) this.back();
    if (isTyping(event)) return;
    const keys = {
      "?": () => byId("keys").showModal(),
      "/": () => this.shownView === "table" && byId("search").focus(),
      c: () => !byId("compare").disabled && this.change({ view: "compare" }),
      "[": () => this.shownView === "code" && this.step(-1),
      "]": () => this.shownView === "code" && this.step(1),
    };
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
  }
}

async function start() {
  const values = await unpack(byId("report").textContent);
  new Page(values);
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  byId("fatal").textContent = `This report cannot be shown here (${error.message}). It needs a browser of 2023 or newer.`;
  show(byId("fatal"), true);
});
