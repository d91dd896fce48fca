// The page: one state, shown by its parts, kept in the link.

import { drawConfig } from "./config.js";
import { csvText, save } from "./csv.js";
import { Report, unpack } from "./data.js";
import { NARROW, announce, byId, copyText, isTyping, make, number, show } from "./dom.js";
import { drawFunnel, drawTargets } from "./funnel.js";
import { drawColumns, drawFacets } from "./filters.js";
import { shownRows } from "./rows.js";
import { fromHash, toHash } from "./state.js";
import { Table } from "./table.js";

const QUIET = 150; // ms without a key after which a search is made
const COPIED = 1500; // ms for which a button says what became of a click

class Page {
  constructor(document_) {
    this.reports = document_.reports.map(
      (values, index) => new Report(values, document_, index),
    );
    this.table = new Table({
      focus: (row) => drawConfig(this.report, row),
      sort: (name) => this.sort(name),
    });
    this.#listen();
    this.restore();
  }

  get report() {
    return this.reports[this.state.target] ?? this.reports[0];
  }

  /** Takes on some values of the state. */
  change(values) {
    this.state = { ...this.state, ...values };
    history.replaceState(null, "", `#${toHash(this.state)}`);
    this.render();
  }

  /** Takes the state from the link. */
  restore() {
    this.state = fromHash(location.hash);
    if (!this.reports[this.state.target]) this.state.target = 0;
    byId("search").value = this.state.query;
    this.render();
  }

  sort(name) {
    const sort = this.state.sort ?? this.report.order;
    this.change({ sort: sort === name ? `-${name}` : name });
  }

  render() {
    const { report, reports, state } = this;
    this.#find();
    drawTargets(reports, report, (target) => this.change({ target, facets: {} }));
    drawFunnel(report, state.facets.fate ?? null, (fate) => this.#facet("fate", fate));
    drawFacets(report, state.facets, (name, value) => this.#facet(name, value));
    drawColumns(report, state.columns ?? report.usual(), (columns) => this.change({ columns }));
    byId("answer").textContent = report.headline;
    byId("guesses").replaceChildren(...report.guesses.map((line) => make("p", { class: "notice" }, line)));
    byId("notes").replaceChildren(...report.notes.map((line) => make("li", {}, line)));
    this.table.update(report, this.rows, state);
    byId("shown").textContent = `${number(this.rows.length)} of ${number(report.size)} configs`;
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

  #facet(name, value) {
    const facets = { ...this.state.facets };
    if (value === null) delete facets[name];
    else facets[name] = value;
    this.change({ facets });
  }

  #listen() {
    let waiting;
    byId("search").addEventListener("input", (event) => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.change({ query: event.target.value.trim() }), QUIET);
    });
    byId("clear").addEventListener("click", () => {
      byId("search").value = "";
      this.change({ query: "", facets: {} });
    });
    byId("export").addEventListener("click", () => this.#export());
    byId("copy").addEventListener("click", (event) => this.#copy(event.currentTarget));
    matchMedia(NARROW).addEventListener("change", () => this.render());
    byId("help").addEventListener("click", () => byId("keys").showModal());
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // the address holds the view
      this.table.focus();
    });
    byId("theme").addEventListener("click", () => {
      const root = document.documentElement;
      const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
      root.dataset.theme = (root.dataset.theme ?? system) === "dark" ? "light" : "dark";
    });
    window.addEventListener("popstate", () => this.restore());
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Copies the config in focus as Python, and says on the button whether that was allowed. */
  async #copy(button) {
    const done = await copyText(this.report.configs[this.table.current]);
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
    if (byId("keys").open || isTyping(event)) return;
    const keys = { "?": () => byId("keys").showModal(), "/": () => byId("search").focus() };
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
