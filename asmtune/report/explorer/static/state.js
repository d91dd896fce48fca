// What is looked at, as a link: everything after # that differs from the usual.

/** The state of a page that was just opened. */
export function initialState() {
  return {
    target: 0,
    sort: null, // null: the winner first
    query: "",
    facets: {},
    columns: null, // names; null for the usual ones
    x: null,
    y: "predicted_us",
    log: null, // null: as the values ask for
    picked: [], // ids of configs to compare
    view: "table", // or "code" or "compare"
    id: null, // of the config whose code is open
    panes: null, // names of the code panes in sight; null for all
    at: null, // pane:line that is selected
    language: "ptx",
    scope: "hot",
    strict: false, // whether register numbers count as differences
  };
}

const PLAIN = ["sort", "query", "x", "y", "view", "id", "at", "language", "scope"];
const COMPARED = ["ptx", "sass"]; // that two configs are compared in
const LISTS = ["columns", "picked", "panes"];

/** A state as the text after #. */
export function toHash(state) {
  const usual = initialState();
  const params = new URLSearchParams();
  if (state.target) params.set("target", state.target);
  for (const name of PLAIN) {
    if (state[name] !== usual[name] && state[name] !== null) params.set(name, state[name]);
  }
  for (const name of LISTS) {
    if (state[name]?.length) params.set(name, state[name].join(","));
  }
  if (state.log !== null) params.set("log", state.log ? 1 : 0);
  if (state.strict) params.set("strict", 1);
  for (const [name, value] of Object.entries(state.facets)) params.set(`is.${name}`, value);
  return params.toString();
}

/** The state that a text after # stands for; what it does not say is as usual. */
export function fromHash(text) {
  const state = initialState();
  const params = new URLSearchParams(text.replace(/^#/, ""));
  state.target = Number(params.get("target") ?? 0) || 0;
  for (const name of PLAIN) state[name] = params.get(name) ?? state[name];
  for (const name of LISTS) {
    if (params.has(name)) state[name] = params.get(name).split(",").filter(Boolean);
  }
  if (params.has("log")) state.log = params.get("log") === "1";
  if (!COMPARED.includes(state.language)) state.language = initialState().language;
  state.strict = params.get("strict") === "1";
  for (const [name, value] of params) {
    if (name.startsWith("is.")) state.facets[name.slice(3)] = value;
  }
  return state;
}

/** The report's and the row's number of a config's id, `0.12`; null where there is no such config. */
export function parseId(id, reports) {
  const match = /^(\d{1,6})\.(\d{1,9})$/.exec(id ?? "");
  if (!match) return null;
  const [target, row] = [Number(match[1]), Number(match[2])];
  return reports[target] && row < reports[target].size ? { report: reports[target], row } : null;
}
