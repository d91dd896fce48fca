// Drop-down lists that narrow the table, and the choice of its columns.

import { compareValues } from "./data.js";
import { byId, make } from "./dom.js";

const MOST = 24; // values of an axis that a list is still good for

/** Lists of the verdicts, the limits and the axes; `choose(name, value)` with null for any. */
export function drawFacets(report, chosen, choose) {
  const names = ["fate", "bottleneck", ...report.varying()].filter((name) => {
    const values = report.values(name).length;
    return values > 1 && (values <= MOST || name in chosen);
  });
  const focused = document.activeElement?.dataset?.facet;
  const lists = names.map((name) => list(report, name, chosen[name], choose));
  byId("facets").replaceChildren(...lists);
  if (focused) byId("facets").querySelector(`[data-facet="${CSS.escape(focused)}"]`)?.focus();
}

function list(report, name, chosen, choose) {
  const values = report.values(name).map((value) => String(value ?? "none"));
  if (name === "fate") values.splice(values.includes("kept") ? 1 : 0, 0, "dropped");
  if (name === "fate") values.sort((a, b) => order(a) - order(b) || compareValues(a, b));
  const options = [...new Set(values)].map((value) =>
    make("option", { value, selected: value === chosen }, value),
  );
  const select = make(
    "select",
    { "data-facet": name, on: { change: (event) => choose(name, event.target.value || null) } },
    make("option", { value: "" }, "any"),
    ...options,
  );
  return make("label", { class: chosen === undefined ? "facet" : "facet chosen" }, make("span", {}, report.title(name)), select);
}

function order(fate) {
  return ["kept", "dropped"].indexOf(fate) + 1 || 3;
}

/** A list of all columns with boxes; `choose(names)` where one changes, null for the usual ones. */
export function drawColumns(report, chosen, choose) {
  const groups = new Map();
  for (const name of report.every()) {
    const group = report.group(name);
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(name);
  }
  const parts = [...groups].map(([group, names]) =>
    make("fieldset", {}, make("legend", {}, group), ...names.map((name) => box(report, name, chosen, choose))),
  );
  const usual = make(
    "button",
    { type: "button", class: "small", on: { click: () => choose(null) } },
    "Usual columns",
  );
  const focused = document.activeElement?.dataset?.column;
  byId("columns-list").replaceChildren(usual, ...parts);
  if (focused) byId("columns-list").querySelector(`[data-column="${CSS.escape(focused)}"]`)?.focus();
}

function box(report, name, chosen, choose) {
  const input = make("input", {
    type: "checkbox",
    checked: chosen.includes(name),
    "data-column": name,
    on: {
      change: (event) => {
        const without = chosen.filter((other) => other !== name);
        const names = event.target.checked ? [...without, name] : without;
        // In the report's own order, wherever it was clicked.
        if (names.length) choose(report.every().filter((other) => names.includes(other)));
        else event.target.checked = true;
      },
    },
  });
  return make("label", { title: report.meaning(name) }, input, report.title(name));
}
