// SPDX-License-Identifier: Apache-2.0
// An icicle over stacks: top down from the outermost frame, or bottom up from the innermost, where frames of one function
// are one. Drawn on a canvas; a click makes a frame the whole width.

const MEASURES = [
  ["peak", "bytes at the peak"],
  ["allocated", "bytes allocated"],
  ["count", "allocations"],
  ["moment", "bytes at the moment"],
  ["never", "bytes never freed"],
  ["temporary", "bytes freed at once"],
];
const FLAME_ROW = 20;
const FLAME_HEIGHT = 400; // pixels at most

class FlamePanel {
  static async make(data, sets, columns, section) {
    const panel = new FlamePanel();
    Object.assign(panel, { data, set: sets[data.set], section, measure: data.measures[0], bottomUp: false, query: "", hoverFrame: null });
    panel.build();
    return panel;
  }

  build() {
    const { set, section } = this;
    this.measures = this.namedMeasures();
    this.tick = set.peakTick;
    this.canvas = new Canvas(FLAME_HEIGHT, "Stacks by bytes; the table below has the same", (context, width, height) =>
      this.draw(context, width, height),
    );
    this.canvas.element.classList.add("flame");
    this.canvas.element.tabIndex = 0;
    this.tip = element("p", { class: "status", text: " " });
    this.table = element("div");
    const search = element("input", { type: "search", placeholder: "search frames", "aria-label": "search frames" });
    search.addEventListener("input", () => {
      this.query = search.value.trim().toLowerCase();
      this.canvas.ask();
      this.sayFound();
    });
    const ways = [["down", "top down"], ["up", "bottom up"]];
    const controls = element(
      "div",
      { class: "controls" },
      ...this.chooser(),
      choice("from", ways, "down", (way) => this.set_({ bottomUp: way === "up" })),
      search,
      element("button", { type: "button", text: "Whole picture", onclick: () => this.focus(this.root) }),
    );
    section.querySelector(".stage").replaceChildren(controls, this.canvas.element, this.tip, this.table);
    const place = (event) => {
      const box = this.canvas.element.getBoundingClientRect();
      return this.nodeAt(event.clientX - box.left, event.clientY - box.top);
    };
    this.canvas.element.addEventListener("pointermove", (event) => this.hover(place(event)));
    this.canvas.element.addEventListener("pointerleave", () => this.hover(null));
    this.canvas.element.addEventListener("click", (event) => {
      const node = place(event);
      if (node) this.focus(node === this.focused && node.parent ? node.parent : node);
    });
    this.canvas.element.addEventListener("keydown", (event) => this.key(event));
    momentListeners.push((set_, tick) => {
      if (set_ !== set || tick === this.tick) return;
      this.tick = tick;
      if (this.measure === "moment") this.compute();
    });
    this.compute();
  }

  namedMeasures() {
    const named = ([key, name]) => [key, key === "count" ? `${this.data.counted}s` : name];
    const known = this.data.measures.filter((one) => one !== "moment" || !this.set.merged);
    return known.map((one) => named(MEASURES.find(([key]) => key === one)));
  }

  chooser() {
    return [choice("by", this.measures, this.measure, (measure) => this.set_({ measure }))];
  }

  /** The number in set.frames that a site is shown as. */
  frameOf(site) {
    return this.set.siteFrame[site];
  }
  /** Whether a site's own frame is left out: what it has is then its caller's. */
  isHidden() {
    return false;
  }

  set_(change) {
    Object.assign(this, change);
    this.compute();
  }

  /** The measure of each site's own objects. */
  weights() {
    const { set, measure, tick } = this;
    if (measure !== "moment" && set.exact.sums) return Float64Array.from(set.exact.sums[measure]);
    const own = new Float64Array(set.siteFrame.length);
    const counts = {
      peak: (i) => (set.born[i] <= set.peakTick && set.died[i] > set.peakTick ? set.bytes[i] : 0),
      allocated: (i) => set.bytes[i],
      count: (i) => set.countOf(i),
      moment: (i) => (set.born[i] <= tick && set.died[i] > tick ? set.bytes[i] : 0),
      never: (i) => (set.neverFreed(i) ? set.bytes[i] : 0),
      temporary: (i) => (set.isTemporary(i) ? set.bytes[i] : 0),
    };
    const of = counts[measure];
    for (let i = 0; i < set.count; i++) own[set.site[i]] += of(i);
    return own;
  }

  /** Merges by function: children of one node with one frame are one node. */
  compute() {
    const { set, bottomUp } = this;
    const own = this.weights();
    const root = { frame: -1, value: 0, self: 0, children: new Map(), parent: null, depth: 0 };
    const child = (node, frame) => {
      let found = node.children.get(frame);
      if (!found) {
        found = { frame, value: 0, self: 0, children: new Map(), parent: node, depth: node.depth + 1 };
        node.children.set(frame, found);
      }
      return found;
    };
    const nodes = new Array(own.length);
    const nodeOf = (site) => {
      if (site < 0) return root;
      if (!nodes[site]) {
        const above = nodeOf(set.siteParent[site] - 1);
        const frame = this.frameOf(site);
        nodes[site] = this.isHidden(site) || (this.merges && above.frame === frame) ? above : child(above, frame);
      }
      return nodes[site];
    };
    for (let site = 0; site < own.length; site++) {
      const value = own[site];
      if (!value) continue;
      if (bottomUp) {
        let node = root;
        root.value += value;
        for (let at = site; at >= 0; at = set.siteParent[at] - 1) {
          const frame = this.frameOf(at);
          if (this.isHidden(at) || (this.merges && node.frame === frame)) continue;
          node = child(node, frame);
          node.value += value;
        }
        node.self += value;
      } else {
        const node = nodeOf(site);
        node.self += value;
        for (let at = node; at; at = at.parent) at.value += value;
      }
    }
    this.root = root;
    this.functions = this.byFunction(own);
    this.focus(root);
    this.showTable();
  }

  /** Of each frame: its own, and what it and all that it reached have; recursion counted once. */
  byFunction(own) {
    const { set } = this;
    const sums = new Map();
    for (let site = 0; site < own.length; site++) {
      if (!own[site]) continue;
      const seen = new Set();
      for (let at = site; at >= 0; at = set.siteParent[at] - 1) {
        if (this.isHidden(at)) continue;
        const frame = this.frameOf(at);
        const sum = sums.get(frame) || { frame, self: 0, total: 0 };
        sums.set(frame, sum);
        if (seen.size === 0) sum.self += own[site];
        if (!seen.has(frame)) sum.total += own[site];
        seen.add(frame);
      }
    }
    return [...sums.values()].sort((a, b) => b.self - a.self || b.total - a.total || a.frame - b.frame);
  }

  text(value) {
    return this.measure === "count" ? plural(value, this.data.counted) : bytesText(value);
  }

  showTable() {
    const name = this.measures.find(([key]) => key === this.measure)[1];
    const rows = this.functions.slice(0, 100).map((sum) => ({
      cells: [this.set.frames[sum.frame], this.text(sum.self), percentText(sum.self, this.root.value),
        ...(this.set.cut ? [] : [this.text(sum.total)])],
    }));
    const heads = ["frame", "own", "share", ...(this.set.cut ? [] : ["with all it reached"])]; // which needs whole stacks
    const table = tableOf(`Frames by ${name}`, heads, rows);
    const open = this.table.querySelector("details")?.open || false;
    const details = element("details", {}, element("summary", { text: `Table: frames by ${name}` }), table);
    details.open = open;
    this.table.replaceChildren(details);
  }

  focus(node) {
    this.focused = node;
    this.layOut();
    this.canvas.ask();
    this.hovered = undefined; // what is said follows what is shown
    this.hover(null);
  }

  /** Boxes of what is wide enough to be seen: the frames below the focus in grey, then all that it reached. */
  layOut() {
    this.boxes = [];
    const path = [];
    for (let at = this.focused; at; at = at.parent) path.unshift(at);
    path.forEach((node, row) => this.boxes.push({ node, x0: 0, x1: 1, row, dim: node !== this.focused }));
    const least = 1 / Math.max(this.canvas.width, 300);
    const visit = (node, x0, x1, row) => {
      if (row * FLAME_ROW > FLAME_HEIGHT) return;
      let x = x0;
      for (const one of sortedChildren(node)) {
        const wide = ((x1 - x0) * one.value) / node.value;
        if (wide < least) break; // narrower than a pixel, and so are all after it
        this.boxes.push({ node: one, x0: x, x1: x + wide, row });
        visit(one, x, x + wide, row + 1);
        x += wide;
      }
    };
    visit(this.focused, 0, 1, path.length);
    const rows = this.boxes.reduce((most, box) => Math.max(most, box.row + 1), 1);
    if (this.focused === this.root) this.canvas.setHeight(Math.min(Math.max(rows * FLAME_ROW, 60), FLAME_HEIGHT));
  }

  name(node) {
    return node.frame < 0 ? "all" : this.set.frames[node.frame];
  }

  nodeAt(x, y) {
    const row = Math.floor(y / FLAME_ROW);
    const share = x / Math.max(this.canvas.width, 1);
    const box = this.boxes.find((one) => one.row === row && one.x0 <= share && share < one.x1);
    return box ? box.node : null;
  }

  hover(node) {
    if (node === this.hovered) return;
    this.hovered = node;
    const at = node || this.focused;
    const share = percentText(at.value, this.root.value);
    this.tip.textContent = `${this.name(at)}: ${this.text(at.value)}, ${share || "0 %"} of all; own ${this.text(at.self)}`;
    if (node) announce(this.tip.textContent);
    this.canvas.ask();
  }

  key(event) {
    const beside = (step) => {
      if (!this.focused.parent) return null;
      const row = sortedChildren(this.focused.parent);
      return row[row.indexOf(this.focused) + step];
    };
    const keys = {
      ArrowDown: () => sortedChildren(this.focused)[0],
      ArrowUp: () => this.focused.parent,
      ArrowRight: () => beside(1),
      ArrowLeft: () => beside(-1),
      Home: () => this.root,
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    const next = keys[event.key]();
    if (next) {
      this.focus(next);
      announce(this.tip.textContent);
    }
  }

  sayFound() {
    if (!this.query) return this.hover(null);
    const found = this.functions.filter((sum) => this.set.frames[sum.frame].toLowerCase().includes(this.query));
    const own = found.reduce((sum, one) => sum + one.self, 0);
    this.tip.textContent = `${plural(found.length, "frame")} found; their own: ${this.text(own)}`;
  }

  draw(context, width, height) {
    context.clearRect(0, 0, width, height);
    if (!this.root.value) {
      context.fillStyle = ink("muted");
      context.fillText("nothing by this measure", 8, 20);
      return;
    }
    for (const { node, x0, x1, row, dim } of this.boxes) {
      const left = x0 * width;
      const wide = (x1 - x0) * width;
      const name = this.name(node);
      const hit = this.query && name.toLowerCase().includes(this.query);
      context.globalAlpha = dim ? 0.45 : this.query && !hit ? 0.3 : 1;
      context.fillStyle = hit ? ink("hit") : frameColour(name);
      context.fillRect(left, row * FLAME_ROW, Math.max(wide - 1, 0.5), FLAME_ROW - 1);
      if (node === this.hovered) {
        context.strokeStyle = ink("ink");
        context.lineWidth = 1.5;
        context.strokeRect(left + 0.75, row * FLAME_ROW + 0.75, Math.max(wide - 2.5, 1), FLAME_ROW - 2.5);
      }
      if (wide > 36) {
        context.fillStyle = "#14181f";
        context.save();
        context.beginPath();
        context.rect(left, row * FLAME_ROW, wide - 4, FLAME_ROW);
        context.clip();
        context.fillText(shortFrame(name), left + 5, row * FLAME_ROW + 14);
        context.restore();
      }
    }
    context.globalAlpha = 1;
  }
}


/** The largest first; sorted once. */
function sortedChildren(node) {
  node.sorted ||= [...node.children.values()].sort((a, b) => b.value - a.value || a.frame - b.frame);
  return node.sorted;
}

const FLAME_HUES = ["#f2b66d", "#efc98b", "#f0a875", "#8fc1d9", "#a3cfe0", "#9bcbb4", "#b3d8c3", "#d9b8d3"];
/** One colour a module: native frames blue, operators green, Python warm. */
function frameColour(name) {
  const kind = /\.py\b/.test(name) ? [0, 1, 2] : /^(aten|torch)::|::/.test(name) ? [5, 6] : /\.so|0x|\.cc|\.cpp/.test(name) ? [3, 4] : [6, 5, 1];
  let sum = 0;
  for (let i = 0; i < Math.min(name.length, 40); i++) sum = (sum * 31 + name.charCodeAt(i)) >>> 0;
  return name === "all" ? "#c9ced6" : FLAME_HUES[kind[sum % kind.length]];
}
