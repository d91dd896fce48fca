// The funnel: what came in, what fell where and why, what is kept.

import { byId, make, number } from "./dom.js";

/** Draws the funnel of a report; `choose(verdict)` narrows the table, null widens it. */
export function drawFunnel(current, chosen, choose) {
  let left = current.size;
  const steps = current.funnel.map(({ stage, reason, configs }) => {
    left -= configs;
    return { stage, reason, fate: `${stage}: ${reason}`, configs, left };
  });
  const kept = { stage: "kept", reason: `by ${current.scorer}`, fate: "kept", configs: left, left };
  const rows = [
    line(current, { stage: "space", reason: "all configs", fate: null, configs: current.size, left: current.size }),
    ...steps.map((step) => line(current, step)),
    line(current, kept),
  ];
  byId("funnel-body").replaceChildren(...rows);

  function line(report, step) {
    const isLoss = steps.includes(step);
    const pressed = step.fate !== null && step.fate === chosen;
    const button = make(
      "button",
      {
        type: "button",
        "aria-pressed": String(pressed),
        title: step.fate === null ? "Show all" : `Show: ${step.fate}`,
        on: { click: () => choose(pressed ? null : step.fate) },
      },
      make("span", { class: "stage" }, step.stage),
      " ",
      make("span", { class: "reason" }, step.reason),
    );
    return make(
      "tr",
      { class: step.fate === "kept" ? "is-kept" : isLoss ? "is-loss" : "" },
      make("th", { scope: "row" }, button),
      make("td", { class: "share", "aria-hidden": "true" }, bar(report, step, isLoss)),
      make("td", { class: "number" }, `${isLoss ? "−" : ""}${number(step.configs)}`),
    );
  }

  function bar(report, step, isLoss) {
    const lost = make("span", { class: "lost" });
    const solid = make("span", { class: "solid" });
    solid.style.width = `${(100 * step.left) / report.size}%`;
    lost.style.width = `${isLoss ? (100 * step.configs) / report.size : 0}%`;
    const track = make("span", { class: "track" }, solid, lost);
    return track;
  }
}

/** The target with what it keeps, as tabs where there are several. */
export function drawTargets(reports, current, choose) {
  const tabs = reports.map((report) => {
    const kept = `${number(report.kept)} of ${number(report.size)} kept`;
    const text = [make("span", {}, report.label), " ", make("span", { class: "count" }, kept)];
    if (reports.length === 1) return make("p", {}, "on ", ...text);
    const pressed = String(report === current);
    return make("button", { type: "button", "aria-pressed": pressed, on: { click: () => choose(report.index) } }, ...text);
  });
  byId("targets").replaceChildren(...tabs);
}
