// SPDX-License-Identifier: Apache-2.0
// Sizes x lifetimes as a heat map: how many bytes, or objects, of each size live how long; of all sites or of one.

const DECADE_PARTS = 2; // cells a decade of lifetimes
const SIZE_STEP = 4; // from one row of sizes to the next
const SIZE_LABEL = 2; // rows from one label to the next
const BELOW = 40; // pixels for the axis of lifetimes

class LifetimesPanel {
  static async make(data, sets, columns, section) {
    const panel = new LifetimesPanel();
    Object.assign(panel, { set: sets[data.set], section, site: -1, by: "bytes" });
    panel.build();
    return panel;
  }

  build() {
    const { set, section } = this;
    this.canvas = new Canvas(314, "Sizes by lifetimes; the table below has the same", (context, width, height) =>
      this.draw(context, width, height),
    );
    this.tip = element("p", { class: "status", text: " " });
    this.table = element("div");
    const sites = [["-1", "all sites"], ...this.largestSites().map((site) => [String(site), set.siteText(site)])];
    const controls = element(
      "div",
      { class: "controls" },
      choice("by", [["bytes", "bytes"], ["count", "objects"]], this.by, (by) => this.set_({ by })),
      set.site ? choice("of", sites, "-1", (site) => this.set_({ site: Number(site) })) : null,
    );
    section.querySelector(".stage").replaceChildren(controls, this.canvas.element, this.tip, this.table);
    this.canvas.element.addEventListener("pointermove", (event) => {
      const box = this.canvas.element.getBoundingClientRect();
      const cell = this.cellAt(event.clientX - box.left, event.clientY - box.top);
      this.tip.textContent = cell ? this.cellText(cell) : " ";
    });
    this.compute();
  }

  set_(change) {
    Object.assign(this, change);
    this.compute();
  }

  largestSites() {
    const { set } = this;
    if (!set.site) return [];
    if (set.exact.lives) {
      const there = [...new Set(set.exact.lives.site)].filter((site) => site > 0).map((site) => site - 1);
      return there.sort((a, b) => set.exact.sums.allocated[b] - set.exact.sums.allocated[a] || a - b);
    }
    const sums = new Float64Array(set.siteFrame.length);
    for (let i = 0; i < set.count; i++) sums[set.site[i]] += set.bytes[i];
    return [...sums.keys()].filter((site) => sums[site]).sort((a, b) => sums[b] - sums[a]).slice(0, 40);
  }

  lifetime(i) {
    const { set } = this;
    return set.time ? set.timeOf(set.died[i]) - set.timeOf(set.born[i]) : set.died[i] - set.born[i];
  }

  compute() {
    const { set, site } = this;
    const cells = new Map();
    const scale = DECADE_PARTS / Math.LN10;
    const half = (value) => Math.floor(Math.log(value > 1 ? value : 1) * scale + 1e-9);
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    let next = Infinity; // the shortest lifetime but those of the first column
    this.hasNever = false;
    const add = (x, y, count, bytes) => {
      const key = (x + 1) * 64 + y;
      let cell = cells.get(key);
      if (!cell) cells.set(key, (cell = { x, y, count: 0, bytes: 0 }));
      cell.count += count;
      cell.bytes += bytes;
      if (x < 0) this.hasNever = true;
      else [x0, x1] = [Math.min(x0, x), Math.max(x1, x)];
      if (x > 0) next = Math.min(next, x);
      [y0, y1] = [Math.min(y0, y), Math.max(y1, y)];
    };
    const { lives } = set.exact;
    for (let k = 0; lives && k < lives.site.length; k++) {
      if (lives.site[k] === site + 1) add(lives.life[k] - 1, lives.size[k], lives.count[k], lives.bytes[k]);
    }
    for (let i = 0; !lives && i < set.count; i++) {
      if (site >= 0 && set.site[i] !== site) continue;
      const x = set.neverFreed(i) ? -1 : half(this.lifetime(i));
      add(x, Math.floor(Math.log2(Math.max(set.size[i], 1)) / Math.log2(SIZE_STEP)), set.countOf(i), set.bytes[i]);
    }
    if (x0 > x1) [x0, x1] = [0, 0];
    if (y0 > y1) [y0, y1] = [0, 0];
    // Objects that live for no time that the clock tells stand by themselves, not decades away from the others.
    this.hasNone = x0 === 0 && next > 2 && next < Infinity;
    if (this.hasNone) x0 = next;
    this.cells = [...cells.values()];
    this.box = { x0, x1, y0, y1 };
    this.canvas.ask();
    this.showTable();
  }

  edge(half) {
    return 10 ** (half / DECADE_PARTS);
  }
  lifeText(value) {
    return this.set.time ? durationText(value) : plural(Math.ceil(value), this.set.unit);
  }
  rangeText(at, edge, text) {
    return at === 0 ? `under ${text(edge(1))}` : `${text(edge(at))} to ${text(edge(at + 1))}`;
  }
  lifeRange(cell) {
    if (cell.x < 0) return "never freed";
    return this.rangeText(cell.x, (half) => this.edge(half), (value) => this.lifeText(value));
  }
  sizeRange(cell) {
    return this.rangeText(cell.y, (row) => SIZE_STEP ** row, bytesText);
  }
  cellText(cell) {
    const lives = `${cell.x < 0 ? "" : "live "}${this.lifeRange(cell)}`;
    return `${this.sizeRange(cell)}, ${lives}: ${plural(cell.count, "object")}, ${bytesText(cell.bytes)}`;
  }

  geometry(width, height) {
    const { x0, x1, y0, y1 } = this.box;
    const left = 70;
    const lead = this.hasNone ? 1.5 : 0;
    const columns = lead + x1 - x0 + 1 + (this.hasNever ? 1.5 : 0);
    const wide = Math.min((width - left - 8) / columns, 90);
    const high = Math.min((height - BELOW - 12) / (y1 - y0 + 1), 40);
    const x = (half) => {
      if (half < 0) return left + (lead + x1 - x0 + 1.5) * wide;
      return left + (half < x0 ? 0 : lead + half - x0) * wide;
    };
    const y = (half) => height - BELOW - (half - y0 + 1) * high;
    return { left, wide, high, x, y };
  }

  cellAt(px, py) {
    const { wide, high, x, y } = this.geometry(this.canvas.width, this.canvas.height);
    return this.cells.find((cell) => {
      const [left, top] = [x(cell.x), y(cell.y)];
      return px >= left && px < left + wide && py >= top && py < top + high;
    });
  }

  draw(context, width, height) {
    const { wide, high, x, y, left } = this.geometry(width, height);
    const { x0, x1, y0, y1 } = this.box;
    context.clearRect(0, 0, width, height);
    const value = (cell) => (this.by === "bytes" ? cell.bytes : cell.count);
    const most = this.cells.reduce((sum, cell) => Math.max(sum, value(cell)), 1);
    for (const cell of this.cells) {
      const share = Math.sqrt(value(cell) / most);
      context.globalAlpha = 0.12 + 0.88 * share;
      context.fillStyle = ink("heat");
      context.fillRect(x(cell.x), y(cell.y), wide - 1, high - 1);
      context.globalAlpha = 1;
      if (wide > 54 && high > 15) {
        context.fillStyle = share > 0.55 ? ink("paper") : ink("ink");
        context.textAlign = "center";
        const text = this.by === "bytes" ? bytesText(cell.bytes) : countText(cell.count);
        context.fillText(text, x(cell.x) + wide / 2, y(cell.y) + high / 2 + 4);
      }
    }
    context.fillStyle = ink("muted");
    context.textAlign = "right";
    for (let row = y0; row <= y1; row++) {
      if (row % SIZE_LABEL === 0 || y1 - y0 < 3) context.fillText(bytesText(SIZE_STEP ** row), left - 6, y(row) + high + 3);
    }
    context.fillText("size", left - 6, y(y1) + 4);
    context.textAlign = "left";
    let free = -Infinity;
    if (this.hasNone) {
      const text = `under ${this.lifeText(this.edge(1))}`;
      context.fillText(text, left, height - 24);
      free = left + context.measureText(text).width + 8;
    }
    for (let half = x0; half <= x1; half++) {
      if (half % DECADE_PARTS !== 0 || x(half) < free) continue;
      if (this.hasNever && x(half) > Math.min(x(-1), width - 62) - 60) continue;
      const text = this.lifeText(this.edge(half));
      context.fillText(text, x(half), height - 24);
      free = x(half) + context.measureText(text).width + 8;
    }
    if (this.hasNever) context.fillText("never freed", Math.min(x(-1), width - context.measureText("never freed").width - 2), height - 24);
    context.fillText("lifetime", left, height - 6);
    context.fillRect(left - 2, y(y1), 1, high * (y1 - y0 + 1));
  }

  showTable() {
    const order = [...this.cells].sort((a, b) => b.bytes - a.bytes);
    const rows = order.slice(0, 60).map((cell) => ({
      cells: [
        this.sizeRange(cell),
        this.lifeRange(cell),
        countText(cell.count),
        bytesText(cell.bytes),
      ],
    }));
    const table = tableOf("Objects by size and lifetime", ["size", "lifetime", "objects", "bytes"], rows, 2);
    const open = this.table.querySelector("details")?.open || false;
    const details = element("details", {}, element("summary", { text: "Table: sizes and lifetimes" }), table);
    details.open = open;
    this.table.replaceChildren(details);
  }
}
