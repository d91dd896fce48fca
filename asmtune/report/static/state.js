// What is looked at, as a link: everything after # that differs from the usual.

/** The state of a page that was just opened. */
export function initialState() {
  return {
    target: 0,
    sort: null, // null: the winner first
    query: "",
    facets: {},
    columns: null, // names; null for the usual ones
  };
}

/** A state as the text after #. */
export function toHash({ target, sort, query, facets, columns }) {
  const params = new URLSearchParams();
  if (target) params.set("target", target);
  if (sort !== null) params.set("sort", sort);
  if (query) params.set("query", query);
  if (columns?.length) params.set("columns", columns.join(","));
  for (const [name, value] of Object.entries(facets)) params.set(`is.${name}`, value);
  return params.toString();
}

/** The state that a text after # stands for; what it does not say is as usual. */
export function fromHash(text) {
  const state = initialState();
  const params = new URLSearchParams(text.replace(/^#/, ""));
  state.target = Number(params.get("target") ?? 0) || 0;
  state.sort = params.get("sort");
  state.query = params.get("query") ?? "";
  if (params.has("columns")) state.columns = params.get("columns").split(",").filter(Boolean);
  for (const [name, value] of params) {
    if (name.startsWith("is.")) state.facets[name.slice(3)] = value;
  }
  return state;
}
