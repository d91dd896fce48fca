// The config in focus: its verdict, its predicted time by limit, and why it was dropped.

import { byId, make, number, percent, show } from "./dom.js";

/** Draws the config of a row; empties the card where no row is shown. */
export function drawConfig(report, row) {
  const known = row !== undefined;
  byId("config-title").textContent = known ? report.names[row] : "No config is shown";
  byId("config-facts").replaceChildren(...(known ? facts(report, row) : []));
  byId("config-terms").replaceChildren(...(known ? terms(report, row) : []));
  byId("config-reasons").textContent = known ? report.columns.reasons[row] : "";
  byId("config-failure").textContent = report.failures[row] ?? "";
  show(byId("config-failure"), row in report.failures);
  byId("copy").disabled = !known;
}

/** What is known of a config, as pairs of a term and its value. */
function facts(report, row) {
  const names = ["rank", "fate", "predicted_us"];
  return names
    .filter((name) => report.value(name, row) !== null)
    .map((name) =>
      make(
        "div",
        { class: report.columns.kept[row] ? "fact kept" : "fact", title: report.meaning(name) },
        make("dt", {}, report.title(name)),
        make("dd", {}, number(report.value(name, row))),
      ),
    );
}

/** Parts of the predicted time, a bar each, which sum to it; the largest is the limit. */
function terms(report, row) {
  const total = report.value("predicted_us", row);
  return report.parts(row).map(([name, meaning, us]) => {
    const solid = make("span", { class: "solid" });
    solid.style.width = `${(100 * us) / total}%`;
    return make(
      "tr",
      {},
      make("th", { scope: "row", title: meaning }, name),
      make("td", { class: "share", "aria-hidden": "true" }, make("span", { class: "track" }, solid)),
      make("td", { class: "number" }, `${us.toFixed(2)} us`),
      make("td", { class: "number" }, percent(us / total)),
    );
  });
}
