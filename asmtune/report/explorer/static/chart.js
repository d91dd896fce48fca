// One column against another, a point a config, drawn by uPlot.

import { byId, colour, make, number, show } from "./dom.js";

const NEAR = 14; // pixels from a point that count as on it
const SPREAD = 10; // largest over smallest value from where a logarithmic axis reads better

export class Chart {
  /** @param actions open(row), axes({x, y, log}) */
  constructor(actions) {
    this.actions = actions;
    this.place = byId("chart");
    this.tip = byId("chart-tip");
    this.plot = null;
    for (const name of ["x", "y"]) {
      byId(`chart-${name}`).addEventListener("change", (event) =>
        actions.axes({ [name]: event.target.value, log: null }),
      );
    }
    byId("chart-log").addEventListener("change", (event) => actions.axes({ log: event.target.checked }));
    new ResizeObserver(() => this.#resize()).observe(this.place);
  }

  update(report, rows, state) {
    Object.assign(this, { report, shown: new Set(rows) });
    this.y = report.columns[state.y] ? state.y : "predicted_us";
    const fallback = report.measured && this.y !== "measured_us" ? "measured_us" : "regs_per_thread";
    this.x = report.columns[state.x] ? state.x : fallback;
    this.#choices();
    this.points = this.#points();
    this.log = { x: this.#isLog("x", state.log), y: this.#isLog("y", state.log) };
    // Times against times have one scale, on which equal ones lie on a straight line.
    if (this.#isAgreement()) this.log.x = this.log.y = this.log.x || this.log.y;
    byId("chart-log").checked = this.log.x || this.log.y;
    this.#draw();
  }

  /** The same points in the colours of another theme. */
  redraw() {
    if (this.report) this.#draw();
  }

  #choices() {
    const { report } = this;
    const numeric = report.every().filter((name) => report.isNumeric(name));
    const times = ["predicted_us", "measured_us", "score"].filter((name) => numeric.includes(name));
    fill(byId("chart-x"), report, numeric, this.x);
    fill(byId("chart-y"), report, times, this.y);
  }

  /** Points by x, as uPlot wants them; those that are not shown come in faint. */
  #points() {
    const { report } = this;
    const [xs, ys] = [report.columns[this.x], report.columns[this.y]];
    if (!xs || !ys) return [];
    const points = [];
    for (let row = 0; row < report.size; row += 1) {
      if (typeof xs[row] === "number" && typeof ys[row] === "number") {
        points.push({ row, x: xs[row], y: ys[row] });
      }
    }
    return points.sort((a, b) => a.x - b.x);
  }

  /** Whether an axis is logarithmic: as asked, or where its values spread wide. */
  #isLog(axis, asked) {
    const values = this.points.map((point) => point[axis]);
    if (asked === false || values.length < 2 || !values.every((value) => value > 0)) return false;
    return asked || extreme(values, Math.max) > SPREAD * extreme(values, Math.min);
  }

  #draw() {
    this.plot?.destroy();
    this.plot = null;
    const { report, points } = this;
    show(byId("chart-empty"), points.length === 0);
    const title = `${report.title(this.y)} against ${report.title(this.x)}`;
    this.place.setAttribute("aria-label", `${title}: ${points.length} configs. The table holds the same values.`);
    if (points.length === 0) return;
    const kept = report.columns.kept;
    const layers = [
      points.map(({ row, y }) => (this.shown.has(row) ? null : y)),
      points.map(({ row, y }) => (this.shown.has(row) && !kept[row] ? y : null)),
      points.map(({ row, y }) => (this.shown.has(row) && kept[row] ? y : null)),
    ];
    this.plot = new uPlot(this.#options(), [points.map(({ x }) => x), ...layers], this.place);
    this.plot.over.addEventListener("mousemove", (event) => this.#hover(event));
    this.plot.over.addEventListener("mouseleave", () => show(this.tip, false));
    this.plot.over.addEventListener("click", (event) => {
      const found = this.#near(event);
      if (found) this.actions.open(found.row);
    });
  }

  #options() {
    const layer = (name, size) => ({
      paths: () => null,
      points: { show: true, size, width: 0, fill: colour(name), stroke: colour(name) },
    });
    const axis = (side, name) => ({
      splits: this.log[side] ? (_plot, _axis, min, max) => decades(min, max) : undefined,
      filter: (_plot, splits) => splits,
      stroke: colour("muted"),
      grid: { stroke: colour("line"), width: 1 },
      ticks: { stroke: colour("line"), width: 1, size: 4 },
      font: "11px system-ui, sans-serif",
      labelFont: "11px system-ui, sans-serif",
      label: this.report.title(name),
      labelSize: 16,
      values: (_, splits) => splits.map((value) => (value === null ? "" : number(value))),
    });
    const { width, height } = this.#size();
    return {
      width,
      height,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false }, x: false, y: false },
      scales: {
        x: { time: false, distr: this.log.x ? 3 : 1, range: padded },
        y: { distr: this.log.y ? 3 : 1, range: padded },
      },
      axes: [{ ...axis("x", this.x), size: 34 }, { ...axis("y", this.y), size: 54 }],
      series: [{}, layer("point-faint", 4), layer("point", 5), layer("point-kept", 7)],
      hooks: { draw: [(plot) => this.#diagonal(plot)] },
    };
  }

  /** Whether a time stands against another. */
  #isAgreement() {
    const times = ["predicted_us", "measured_us"];
    return times.includes(this.x) && times.includes(this.y) && this.x !== this.y;
  }

  /** Where prediction and measurement would agree. */
  #diagonal(plot) {
    if (!this.#isAgreement()) return;
    const low = Math.max(plot.scales.x.min, plot.scales.y.min);
    const high = Math.min(plot.scales.x.max, plot.scales.y.max);
    if (low >= high) return;
    const { ctx } = plot;
    ctx.save();
    ctx.strokeStyle = colour("muted");
    ctx.setLineDash([4, 4]);
    ctx.beginPath();
    ctx.moveTo(plot.valToPos(low, "x", true), plot.valToPos(low, "y", true));
    ctx.lineTo(plot.valToPos(high, "x", true), plot.valToPos(high, "y", true));
    ctx.stroke();
    ctx.restore();
  }

  #near(event) {
    const { plot, points } = this;
    const box = plot.over.getBoundingClientRect();
    const [left, top] = [event.clientX - box.left, event.clientY - box.top];
    let best = null;
    let least = NEAR * NEAR;
    for (const point of points) {
      const across = plot.valToPos(point.x, "x") - left;
      const down = plot.valToPos(point.y, "y") - top;
      const distance = across * across + down * down;
      if (distance < least) [best, least] = [point, distance];
    }
    return best;
  }

  #hover(event) {
    const found = this.#near(event);
    show(this.tip, found !== null);
    this.plot.over.style.cursor = found ? "pointer" : "";
    if (!found) return;
    const { report } = this;
    const lines = [
      report.names[found.row],
      `${report.title(this.x)} ${number(found.x)}, ${report.title(this.y)} ${number(found.y)}`,
      report.columns.fate[found.row],
    ];
    this.tip.replaceChildren(...lines.map((line) => make("div", {}, line)));
    const box = this.place.getBoundingClientRect();
    const side = event.clientX - box.left > box.width / 2;
    this.tip.style.top = `${event.clientY - box.top + 12}px`;
    this.tip.style.left = side ? "" : `${event.clientX - box.left + 12}px`;
    this.tip.style.right = side ? `${box.right - event.clientX + 12}px` : "";
  }

  #size() {
    return { width: Math.max(200, this.place.clientWidth), height: Math.max(160, this.place.clientHeight) };
  }

  #resize() {
    this.plot?.setSize(this.#size());
  }
}

function padded(plot, min, max, scale) {
  if (min === null || max === null) return [0, 1];
  if (plot.scales[scale].distr === 3) return [min / 1.15, max * 1.15];
  const room = (max - min || Math.abs(max) || 1) * 0.06;
  return [min >= 0 ? Math.max(0, min - room) : min - room, max + room];
}

/** 1, 2 and 5 of each power of ten in a range; more where that leaves few. */
function decades(min, max) {
  const steps = max / min > 20 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7];
  const found = [];
  for (let power = Math.floor(Math.log10(min)); 10 ** power <= max; power += 1) {
    found.push(...steps.map((step) => step * 10 ** power));
  }
  return found.filter((value) => value >= min && value <= max);
}

function extreme(values, of) {
  return values.reduce((a, b) => of(a, b));
}

/** Fills a drop-down list with columns under their groups. */
function fill(select, report, names, chosen) {
  const groups = new Map();
  for (const name of names) {
    const group = report.group(name);
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(name);
  }
  const options = [...groups].map(([group, members]) =>
    make(
      "optgroup",
      { label: group },
      ...members.map((name) =>
        make("option", { value: name, selected: name === chosen }, report.title(name)),
      ),
    ),
  );
  select.replaceChildren(...options);
}
