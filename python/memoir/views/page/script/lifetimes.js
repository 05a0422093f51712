// SPDX-License-Identifier: Apache-2.0
// Sizes x lifetimes as a heat map: how many bytes, or objects, of each size live how long; of all sites or of one.

const DECADE_PARTS = 2; // cells a decade

class LifetimesPanel {
  static async make(data, sets, columns, section) {
    const panel = new LifetimesPanel();
    Object.assign(panel, { set: sets[data.set], section, site: -1, by: "bytes" });
    panel.build();
    return panel;
  }

  build() {
    const { set, section } = this;
    this.canvas = new Canvas(300, "Sizes by lifetimes; the table below has the same", (context, width, height) =>
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
    this.hasNever = false;
    for (let i = 0; i < set.count; i++) {
      if (site >= 0 && set.site[i] !== site) continue;
      const never = set.neverFreed(i);
      const x = never ? -1 : half(this.lifetime(i));
      const y = half(set.size[i]);
      const key = (x + 1) * 64 + y;
      let cell = cells.get(key);
      if (!cell) cells.set(key, (cell = { x, y, count: 0, bytes: 0 }));
      cell.count += set.countOf(i);
      cell.bytes += set.bytes[i];
      if (never) this.hasNever = true;
      else [x0, x1] = [Math.min(x0, x), Math.max(x1, x)];
      [y0, y1] = [Math.min(y0, y), Math.max(y1, y)];
    }
    if (x0 > x1) [x0, x1] = [0, 0];
    if (y0 > y1) [y0, y1] = [0, 0];
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
  rangeText(half, text) {
    return half === 0 ? `under ${text(this.edge(1))}` : `${text(this.edge(half))} to ${text(this.edge(half + 1))}`;
  }
  cellText(cell) {
    const lives = cell.x < 0 ? "never freed" : `live ${this.rangeText(cell.x, (value) => this.lifeText(value))}`;
    return `${this.rangeText(cell.y, bytesText)}, ${lives}: ${plural(cell.count, "object")}, ${bytesText(cell.bytes)}`;
  }

  geometry(width, height) {
    const { x0, x1, y0, y1 } = this.box;
    const left = 70;
    const columns = x1 - x0 + 1 + (this.hasNever ? 1.5 : 0);
    const wide = Math.min((width - left - 8) / columns, 90);
    const high = Math.min((height - 26) / (y1 - y0 + 1), 40);
    const x = (half) => left + (half < 0 ? x1 - x0 + 1.5 : half - x0) * wide;
    const y = (half) => height - 26 - (half - y0 + 1) * high;
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
    for (let half = y0; half <= y1; half++) {
      if (half % DECADE_PARTS === 0 || y1 - y0 < 3) context.fillText(bytesText(this.edge(half)), left - 6, y(half) + high + 3);
    }
    context.textAlign = "left";
    let free = -Infinity;
    for (let half = x0; half <= x1; half++) {
      if (half % DECADE_PARTS !== 0 || x(half) < free) continue;
      if (this.hasNever && x(half) > Math.min(x(-1), width - 62) - 60) continue;
      const text = this.lifeText(this.edge(half));
      context.fillText(text, x(half), height - 10);
      free = x(half) + context.measureText(text).width + 8;
    }
    if (this.hasNever) context.fillText("never freed", Math.min(x(-1), width - context.measureText("never freed").width - 2), height - 10);
    context.fillRect(left - 2, y(y1), 1, high * (y1 - y0 + 1));
  }

  showTable() {
    const order = [...this.cells].sort((a, b) => b.bytes - a.bytes);
    const rows = order.slice(0, 60).map((cell) => ({
      cells: [
        this.rangeText(cell.y, bytesText),
        cell.x < 0 ? "never freed" : this.rangeText(cell.x, (value) => this.lifeText(value)),
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
