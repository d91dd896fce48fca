// A list of equal rows of which only those in sight are in the document.

const OVERSCAN = 10;

export class VirtualList {
  /**
   * @param scroller what scrolls
   * @param body the rows' parent, inside of it
   * @param render (index) => element
   * @param header what sticks to the top of the scroller, if anything does
   */
  constructor(scroller, body, render, header = null) {
    Object.assign(this, { scroller, body, render, header });
    this.count = 0;
    this.rows = new Map();
    this.height = 0;
    this.waiting = false;
    scroller.addEventListener("scroll", () => this.#later(), { passive: true });
    this.observer = new ResizeObserver(() => this.#later());
    this.observer.observe(scroller);
  }

  /** New content; what was rendered is thrown away. */
  reset(count) {
    this.count = count;
    this.rows.clear();
    this.#measure();
    this.body.style.height = `${count * this.height}px`;
    this.draw();
  }

  /** Renders again what is in sight. */
  refresh() {
    this.rows.clear();
    this.draw();
  }

  /** Scrolls as little as it takes to see a row. */
  reveal(index) {
    const { scroller } = this;
    const room = scroller.clientHeight - (this.header?.offsetHeight ?? 0);
    const top = index * this.height;
    const out = top < scroller.scrollTop || top + this.height > scroller.scrollTop + room;
    if (!out) return;
    scroller.scrollTop = top < scroller.scrollTop ? top : top + this.height - room;
    this.draw();
  }

  /** How many rows a page has. */
  get page() {
    return Math.max(1, Math.floor(this.scroller.clientHeight / this.height) - 2);
  }

  draw() {
    this.waiting = false;
    if (this.height === 0) this.#measure();
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / this.height) - OVERSCAN);
    const seen = Math.ceil(this.scroller.clientHeight / this.height) + 2 * OVERSCAN;
    const last = Math.min(this.count, first + seen);
    const kept = new Map();
    for (let index = first; index < last; index += 1) {
      kept.set(index, this.rows.get(index) ?? this.#place(index));
    }
    this.rows = kept;
    this.body.replaceChildren(...kept.values());
  }

  #place(index) {
    const row = this.render(index);
    row.style.transform = `translateY(${index * this.height}px)`;
    return row;
  }

  #measure() {
    const text = getComputedStyle(this.body).getPropertyValue("--row-height");
    this.height = parseFloat(text) || 24;
  }

  #later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => this.draw());
  }
}
