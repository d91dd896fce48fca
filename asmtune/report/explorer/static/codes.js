// Code texts as the page carries them: packed one by one, unpacked on first use.

import { unpack } from "./data.js";
import { byId } from "./dom.js";

export class Codes {
  constructor(sources) {
    this.sources = sources;
    this.known = new Map();
  }

  /** The code of a config: `{sources, ptx, sass, missing, why}`; null where the page has none. */
  of(report, row) {
    const at = report.code[row] ?? -1;
    if (at < 0) return Promise.resolve(null);
    if (!this.known.has(at)) this.known.set(at, this.#unpacked(at));
    return this.known.get(at);
  }

  async #unpacked(at) {
    this.packed ??= JSON.parse(byId("codes").textContent);
    const code = await unpack(this.packed[at]);
    const used = this.#files(code);
    return { ...code, sources: this.sources.filter(({ file }) => used.has(file)) };
  }

  /** Numbers of the source files that a code comes from. */
  #files(code) {
    const places = [code.ptx, code.sass].flatMap((listing) => listing?.places ?? []);
    return new Set(places.map(([file]) => file));
  }
}
