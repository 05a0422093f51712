// SPDX-License-Identifier: Apache-2.0
// The heap map: every object a rectangle of address x time; hover, click, brush, search; curves above, segments at the
// side. Two maps of a panel are linked.

const MOST_BREAKS = 41; // more stretches of addresses than this have no breaks between them
const SHARP_AFTER = 40; // ms without a gesture until the exact picture is drawn

class HeapMap {
  static async make(data, sets, columns, panel) {
    const map = new HeapMap();
    const set = sets[data.set];
    Object.assign(map, { data, set, panel, spans: data.spans, height: data.height });
    map.low = set.columns[data.address] || new Float64Array(set.count);
    map.segments = await columns.getAll(data.segments);
    map.curves = await Promise.all(
      data.curves.map(async (curve) => ({
        name: curve.name,
        role: curve.role,
        tick: await columns.get(curve.tick),
        values: await columns.get(curve.value),
      })),
    );
    map.breaks = data.spans.length <= MOST_BREAKS ? data.spans.slice(1) : [];
    map.top = 0;
    for (let i = 0; i < set.count; i++) {
      const end = map.low[i] + set.size[i];
      if (end > map.top && end <= map.height) map.top = end;
    }
    map.build();
    return map;
  }

  build() {
    const { set, data } = this;
    this.pixels = matchMedia("(max-width: 700px)").matches ? 300 : 400;
    this.raster = new Raster(set, this.low, this.height, this.segments);
    this.view = new View(this.raster.span, data.scale);
    if (set.moments) this.view.snap = (time) => this.at(set.snap(this.tickOf(time)));
    this.canvas = element("canvas", {
      class: "map",
      tabindex: "0",
      role: "img",
      "aria-label":
        `${data.name}: ${plural(set.objects, "object")} over address and time. Arrow keys pan, plus and minus zoom, ` +
        "n and p go through objects, Enter pins one, brackets move the moment, Home shows all.",
    });
    this.canvas.style.height = `${this.pixels}px`;
    this.overlay = element("canvas", { class: "overlay", "aria-hidden": "true" });
    this.overlay.style.height = `${this.pixels}px`;
    this.tip = element("div", { class: "tip", hidden: true });
    this.curvesView = new Curves(this.view, [], data.lines, [], [], null);
    this.side = new Side(this.view, this);
    this.axis = new Canvas(30, "Time axis", (context, width) => this.drawAxis(context, width));
    this.axis.element.classList.add("axis");
    this.status = element("p", { class: "status" });
    const frame = element("div", { class: "frame" }, this.canvas, this.overlay, this.tip);
    this.element = element(
      "div",
      { class: "one-map" },
      data.name ? element("h3", { text: data.name }) : null,
      data.note ? element("p", { class: "note", text: data.note }) : null,
      element("div", { class: "grid" }, this.curvesView.canvas.element, element("div", { class: "key" }, ...this.curveKey()),
        frame, this.side.canvas.element, this.axis.element),
      this.status,
    );
    this.setTimes();
    this.view.onChange((what) => this.onView(what));
    const size = () => ({ width: this.canvas.clientWidth, height: this.canvas.clientHeight });
    listenToGestures(this.canvas, this.view, size, {
      tap: (x, y) => this.panel.pin(this, this.objectAt(x, y)),
      hover: (x, y) => this.hover(x, y),
      leave: () => this.panel.hovered(this, NO_OBJECT),
      move: (key) => this.key(key),
    });
    new ResizeObserver(() => {
      if (this.canvas.clientWidth !== this.drawnWidth) this.ask(false);
    }).observe(this.canvas);
  }

  curveKey() {
    const roles = [["live", "live"], ...this.curves.map((curve) => [curve.role, curve.name])];
    return roles.map(([role, name]) => {
      const mark = element("span", { class: `swatch role-${ROLE_INK[role] ? role : "other"}`, "aria-hidden": "true" });
      return element("span", {}, mark, name);
    });
  }

  /** Time in the view's unit: ticks, or nanoseconds. */
  at(tick) {
    return this.raster.inTime ? this.set.timeOf(tick) : tick;
  }
  tickOf(time) {
    if (!this.raster.inTime) return Math.floor(time);
    let low = 0;
    let high = this.set.ticks;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.set.time[middle] <= time) low = middle;
      else high = middle - 1;
    }
    return low;
  }
  /** The tick that is looked at: the peak's, until another is chosen. */
  momentTick() {
    const { set, view, chosen } = this;
    if (view.moment === null) return set.peakTick;
    return chosen && chosen.moment === view.moment ? chosen.tick : set.snap(this.tickOf(view.moment));
  }
  /** Looks at one tick; others may have its time. */
  choose(tick) {
    this.chosen = { tick, moment: this.at(tick) };
    this.view.setMoment(this.at(tick));
  }

  setTimes() {
    const { set, data } = this;
    const live = set.liveAt;
    const ticks = new Float64Array(live.length);
    for (let k = 0; k < ticks.length; k++) ticks[k] = this.at(set.liveTick ? set.liveTick[k] : k);
    const curves = [{ name: "live", role: "live", times: ticks, values: live }];
    for (const curve of this.curves) {
      curves.push({ name: curve.name, role: curve.role, times: Float64Array.from(curve.tick, (t) => this.at(t)), values: curve.values });
    }
    Object.assign(this.curvesView, {
      curves,
      most: 0,
      passes: set.passes.map(([name, begin, end]) => [name, this.at(begin), this.at(end)]),
      marks: data.marks.map(([tick, kind, text]) => [this.at(tick), kind, text]),
    });
  }

  setInTime(inTime) {
    const tick = this.view.moment === null ? null : this.momentTick();
    this.raster.setInTime(inTime && !!this.set.time);
    this.view.moment = tick === null ? null : this.at(tick);
    this.chosen = tick === null ? null : { tick, moment: this.at(tick) };
    this.setTimes();
    Object.assign(this.view, { span: this.raster.span, t0: 0, t1: this.raster.span });
    this.view.changed("all");
  }

  addressText(at) {
    const span = this.spans.findLast((one) => one[0] <= at) || this.spans[0];
    if (this.spans.length === 1 && span[2] === "0") return `${countText(at)} (${bytesText(at)})`;
    return `0x${(BigInt(`0x${span[2]}`) + BigInt(Math.max(at - span[0], 0))).toString(16)}`;
  }

  onView(what) {
    if (what === "moment") {
      this.drawOverlay();
      this.panel.momentChanged(this);
      return;
    }
    this.ask(what === "gesture");
  }

  /** Draws with the next frame: quickly while a gesture goes on, and exactly soon after. */
  ask(quick) {
    this.quick = quick && this.raster.count > FEW;
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw(this.quick);
      clearTimeout(this.sharpen);
      if (this.quick) this.sharpen = setTimeout(() => this.draw(false), SHARP_AFTER);
    });
  }

  draw(quick) {
    const began = performance.now();
    const wide = this.canvas.clientWidth;
    const high = this.canvas.clientHeight;
    if (wide < 2 || high < 2) return; // hidden, or no room
    this.drawnWidth = wide;
    const many = this.raster.count > MOST_QUICK; // then a gesture is drawn at half the resolution
    const ratio = quick ? (many ? 0.5 : 1) : Math.min(window.devicePixelRatio || 1, 3);
    const width = Math.max(Math.round(wide * ratio), 1);
    const height = Math.max(Math.round(high * ratio), 1);
    if (!this.ids || this.ids.length !== width * height || this.width !== width) {
      this.ids = new Uint32Array(width * height);
      this.image = new ImageData(width, height);
      this.canvas.width = width;
      this.canvas.height = height;
    }
    Object.assign(this, { width, rows: height });
    this.found = this.raster.draw(this.ids, width, height, this.view, quick);
    this.paint(!quick);
    this.axis.ask();
    this.cost = performance.now() - began;
    this.panel.costs.push({ ms: this.cost, quick });
    if (!quick) this.say();
  }

  colour(edges) {
    const { panel } = this;
    const { groups, legend } = colouring(this.set, panel.mode);
    const paper = ink("paper");
    const mix = (colour, share) => {
      const parts = [rgb(colour), rgb(paper)];
      return `#${parts[0].map((part, k) => Math.round(part * share + parts[1][k] * (1 - share)).toString(16).padStart(2, "0")).join("")}`;
    };
    const colours = {
      paper: pixel(paper),
      held: pixel(ink("held")),
      table: Uint32Array.from(legend, (one) => pixel(one.colour)),
      faded: Uint32Array.from(legend, (one) => pixel(mix(one.colour, 0.22))),
      edge: Uint32Array.from(legend, (one) => pixel(one.colour, 0.72)),
    };
    const pixels = new Uint32Array(this.image.data.buffer);
    const selected = this.set.site ? panel.selection(this.set) : null;
    colourPixels(pixels, this.ids, this.width, this.rows, groups, colours, selected, this.set.site, edges);
    this.canvas.getContext("2d").putImageData(this.image, 0, 0);
  }

  recolour() {
    if (this.ids) this.paint(true);
  }

  paint(edges) {
    this.colour(edges);
    this.drawOverlay();
    // A printer's white paper hides what is under a transparent canvas: there the two are one.
    if (isPrinting()) this.canvas.getContext("2d").drawImage(this.overlay, 0, 0, this.width, this.rows);
  }

  say() {
    const { drawn, small } = this.found;
    const { raster } = this;
    const what = this.set.merged ? "rectangle" : "object"; // of one object or of many
    let text = `${plural(drawn, what)} drawn`;
    if (small) text += `, ${countText(small)} of them (${((100 * small) / Math.max(drawn, 1)).toFixed(0)} %) less than a pixel wide or high`;
    if (raster.left) text += `; ${plural(raster.left, what)} without an address or bytes left out`;
    this.status.textContent = `${text}.`;
  }

  objectAt(x, y) {
    if (!this.ids) return NO_OBJECT;
    const column = Math.min(Math.max(Math.floor(x * this.width), 0), this.width - 1);
    const row = Math.min(Math.max(Math.floor((1 - y) * this.rows), 0), this.rows - 1);
    const id = this.ids[row * this.width + column];
    return id === undefined ? NO_OBJECT : id;
  }

  hover(x, y) {
    const id = this.objectAt(x, y);
    this.panel.hovered(this, id, x, y);
  }

  /** What a box next to the pointer says of an object, of held memory, or of nothing. */
  tipText(id, x, y) {
    if (id === NO_OBJECT) return [];
    if (id === HELD) return [`held, free · ${this.addressText(this.view.a0 + y * (this.view.a1 - this.view.a0))}`];
    const lines = [this.set.text(id), this.addressText(this.low[id])];
    const sx = this.width / (this.view.t1 - this.view.t0);
    if ((this.at(this.set.died[id]) - this.at(this.set.born[id])) * sx < 1) {
      const tick = this.tickOf(this.view.t0 + x * (this.view.t1 - this.view.t0));
      const others = this.othersAt(id, x, y);
      if (others > 1) lines.push(`and ${countText(others - 1)} more${this.set.merged ? " rectangles" : ""} in this pixel, near ${this.set.momentText(tick)}`);
    }
    return lines;
  }

  othersAt(id, x, y) {
    const { view, raster } = this;
    const t = view.t0 + Math.floor(x * this.width) * ((view.t1 - view.t0) / this.width);
    const a = view.a0 + Math.floor(y * this.rows) * ((view.a1 - view.a0) / this.rows);
    const tEnd = t + (view.t1 - view.t0) / this.width;
    const aEnd = a + (view.a1 - view.a0) / this.rows;
    let count = 0;
    for (let k = 0; k < raster.count; k++) {
      if (raster.begin[k] < tEnd && raster.end[k] >= t && raster.bottom[k] < aEnd && raster.top[k] > a) count++;
    }
    return count;
  }

  showTip(id, x, y) {
    const lines = id === NO_OBJECT || id === undefined ? [] : this.tipText(id, x, y);
    this.tip.hidden = !lines.length;
    this.tip.replaceChildren(...lines.map((text, index) => element(index ? "span" : "strong", { text })));
    if (lines.length) {
      const left = x * this.canvas.clientWidth;
      const top = (1 - y) * this.canvas.clientHeight;
      this.tip.style.left = `${Math.max(Math.min(left + 14, this.canvas.clientWidth - this.tip.offsetWidth - 4), 0)}px`;
      const above = top + this.tip.offsetHeight + 18 > this.canvas.clientHeight;
      this.tip.style.top = `${above ? Math.max(top - this.tip.offsetHeight - 10, 0) : top + 14}px`;
      announce(lines.join(", "));
    }
  }

  key(key) {
    const { set } = this;
    if (key === "n" || key === "p") {
      return () => {
        const step = key === "n" ? 1 : -1;
        let at = this.current === undefined ? (step > 0 ? -1 : set.count) : this.current;
        do at += step;
        while (at >= 0 && at < set.count && (this.at(set.died[at]) < this.view.t0 || this.at(set.born[at]) > this.view.t1));
        if (at < 0 || at >= set.count) return;
        this.current = at;
        announce(`${set.title(at)}: ${set.text(at)}`);
        this.highlight(at);
      };
    }
    if (key === "Enter") return () => this.panel.pin(this, this.current === undefined ? NO_OBJECT : this.current);
    if (key === "Escape") return () => this.panel.pin(this, NO_OBJECT);
    if (key === "[" || key === "]") {
      return () => this.choose(set.stepped(this.momentTick(), key === "]" ? 1 : -1));
    }
    return null;
  }

  highlight(i) {
    this.marked = i;
    this.drawOverlay();
  }

  drawOverlay() {
    const wide = this.canvas.clientWidth;
    const high = this.canvas.clientHeight;
    if (wide < 2) return;
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    this.overlay.width = Math.round(wide * ratio);
    this.overlay.height = Math.round(high * ratio);
    const context = this.overlay.getContext("2d");
    context.scale(ratio, ratio);
    const { view, set } = this;
    const x = (time) => ((time - view.t0) / (view.t1 - view.t0)) * wide;
    const y = (at) => high - ((at - view.a0) / (view.a1 - view.a0)) * high;
    context.font = "11px system-ui, sans-serif";
    for (const mark of ticksOf(view.a0, view.a1, 5, true)) {
      if (this.spans.length > 1 || y(mark) < 14) continue;
      context.fillStyle = ink("paper");
      context.globalAlpha = 0.75;
      context.fillRect(2, y(mark) - 13, context.measureText(bytesText(mark)).width + 6, 13);
      context.globalAlpha = 1;
      context.fillStyle = ink("muted");
      context.fillText(bytesText(mark), 5, y(mark) - 3);
    }
    for (const [at] of this.breaks) {
      context.fillStyle = ink("muted");
      const line = Math.round(y(at)) + 1;
      for (let dot = 0; dot < wide; dot += 6) context.fillRect(dot, line, 3, 1);
    }
    for (const [name, value] of this.data.lines) {
      if (this.spans.length > 1 || value < view.a0 || value > view.a1) continue;
      context.strokeStyle = ink("limit");
      context.setLineDash([4, 3]);
      context.beginPath();
      context.moveTo(0, y(value));
      context.lineTo(wide, y(value));
      context.stroke();
      context.setLineDash([]);
      context.fillStyle = ink("limit");
      context.textAlign = "right";
      context.fillText(name, wide - 4, y(value) > 16 ? y(value) - 3 : y(value) + 12);
      context.textAlign = "left";
    }
    const box = (i, colour, line) => {
      if (i === undefined || i >= HELD || i >= set.count) return;
      context.strokeStyle = colour;
      context.lineWidth = line;
      const left = x(this.at(set.born[i]));
      const top = y(this.low[i] + set.size[i]);
      const width = Math.max(x(this.at(set.died[i])) - left, 3);
      const height = Math.max(y(this.low[i]) - top, 3);
      context.strokeRect(left, top, width, height);
    };
    box(this.pinned, ink("ink"), 3);
    box(this.pinned, MARKED, 1.5);
    box(this.marked, ink("ink"), 1.5);
    if (view.moment !== null) {
      context.fillStyle = ink("ink");
      context.fillRect(x(view.moment), 0, 1, high);
    }
  }

  drawAxis(context, width) {
    const { view } = this;
    const inTime = this.raster.inTime;
    context.fillStyle = ink("muted");
    context.fillRect(0, 0, width, 1);
    const step = Math.max(Math.floor(width / 110), 2);
    for (const mark of ticksOf(view.t0, view.t1, step, false)) {
      const x = ((mark - view.t0) / (view.t1 - view.t0)) * width;
      const text = inTime ? durationText(mark) : countText(mark);
      context.textAlign = x < 20 ? "left" : x > width - 30 ? "right" : "center";
      context.fillRect(x, 0, 1, 4);
      context.fillText(text, x, 15);
    }
    context.textAlign = "right";
    context.fillText(inTime ? "time since the recording began" : `${this.set.unit}s`, width, 28);
  }
}

/** A panel of one or two maps: what they are coloured by, what is searched for, what is pinned. */
class MapPanel {
  static async make(data, sets, columns, section) {
    const panel = new MapPanel();
    Object.assign(panel, { data, section, costs: [], query: "", pinnedSite: -1 });
    panel.maps = await Promise.all(data.maps.map((one) => HeapMap.make(one, sets, columns, panel)));
    const own = [...new Set(panel.maps.map((map) => map.set))];
    for (const set of own) set.together = own; // what is one thing in both has one colour
    panel.build();
    return panel;
  }

  build() {
    const { maps, section } = this;
    const set = maps[0].set;
    const modes = modesOf(set);
    this.mode = modes[0][0];
    this.legend = element("div", { class: "legend" });
    this.below = element("div", { class: "below" });
    this.livingPlace = element("div", { class: "side-by-side" });
    this.pinnedPlace = element("div");
    this.below.append(this.pinnedPlace, this.livingPlace);
    const controls = element("div", { class: "controls" }, choice("colour by", modes, this.mode, (mode) => this.setMode(mode)));
    if (set.time) {
      const units = [["ticks", `${set.unit}s`], ["time", "time"]];
      controls.append(choice("axis", units, "ticks", (unit) => maps.forEach((map) => map.setInTime(unit === "time"))));
    }
    if (set.site) {
      const search = element("input", { type: "search", placeholder: "search sites", "aria-label": "search sites" });
      search.addEventListener("input", () => this.search(search.value));
      controls.append(search);
    }
    const peak = () => maps[0].choose(maps[0].set.peakTick);
    controls.append(
      element("button", { type: "button", text: "Whole picture", onclick: () => maps.forEach((map) => map.view.reset()) }),
      element("button", { type: "button", text: "Peak", onclick: peak }),
      element("span", { class: "hint", text: "wheel: zoom · drag: pan · click: pin · click the curve: who lives then" }),
    );
    if (maps.length === 2) linkViews(maps[0].view, maps[1].view);
    const place = element("div", { class: `maps maps-${maps.length}` }, ...maps.map((map) => map.element));
    section.querySelector(".stage").replaceChildren(controls, place, this.legend, this.below);
    this.showLegend();
    if (this.data.moment != null) maps.forEach((map) => (map.view.moment = map.at(map.set.snap(Math.min(this.data.moment, map.set.ticks)))));
    for (const map of maps) {
      map.draw(false);
      for (const canvas of [map.curvesView.canvas, map.side.canvas, map.axis]) canvas.now();
    }
    this.momentChanged(maps[0]);
  }

  setMode(mode) {
    this.mode = mode;
    this.showLegend();
    this.maps.forEach((map) => map.recolour());
    this.momentChanged(this.maps[0]);
  }

  showLegend() {
    const { legend } = colouring(this.maps[0].set, this.mode);
    const rows = legend.filter((one) => !one.hidden);
    this.legend.replaceChildren(
      ...rows.map((one) =>
        element("span", { class: "entry" }, swatch(one.colour), nameOfGroup(one, this.mode),
          one.note ? element("small", { text: one.note }) : null),
      ),
    );
  }

  search(query) {
    this.query = query.trim().toLowerCase();
    this.selections = new Map();
    this.maps.forEach((map) => map.recolour());
    const set = this.maps[0].set;
    const selected = this.selection(set);
    if (!selected) return;
    const { count, bytes } = set.sumOf((site) => selected[site]);
    announce(`${plural(count, "object")} of ${bytesText(bytes)} found`);
    this.maps[0].status.textContent = `${plural(count, "object")} of ${bytesText(bytes)} found.`;
  }

  /** By site, whether it is searched for or of the pinned object's; null for all. */
  selection(set) {
    if (!this.query && this.pinnedSite < 0) return null;
    this.selections ||= new Map();
    const key = `${this.pinnedSite} ${this.query}`;
    if (!this.selections.has(set) || this.selections.get(set).key !== key) {
      const frames = set.frames.map((name) => name.toLowerCase().includes(this.query));
      const sites = new Uint8Array(set.siteFrame.length);
      for (let site = 0; site < sites.length; site++) {
        const parent = set.siteParent[site] - 1;
        const found = this.query ? frames[set.siteFrame[site]] || (parent >= 0 && sites[parent] === 1) : false;
        sites[site] = found || (!this.query && site === this.pinnedSite) ? 1 : 0;
      }
      this.selections.set(set, { key, sites });
    }
    return this.selections.get(set).sites;
  }

  hovered(map, id, x, y) {
    map.showTip(id, x, y);
    for (const one of this.maps) {
      const same = one === map || one.set === map.set;
      one.highlight(same && id < HELD ? id : undefined);
    }
  }

  pin(map, id) {
    const there = id < HELD;
    const set = map.set;
    this.pinnedSite = there ? set.siteOf(id) : -1;
    for (const one of this.maps) {
      one.pinned = there && one.set === set ? id : undefined;
      one.recolour();
    }
    this.pinnedPlace.replaceChildren(...(there ? [pinnedObject(map, id, () => this.pin(map, NO_OBJECT))] : []));
  }

  momentChanged(map) {
    clearTimeout(this.waiting);
    const show = () => {
      const tables = [];
      for (const set of new Set(this.maps.map((one) => one.set))) {
        const mine = this.maps.filter((one) => one.set === set);
        const of = mine.includes(map) ? map : mine[0];
        const tick = of.momentTick();
        const { groups, legend } = colouring(set, this.mode);
        const colourOf = (i) => legend[groups[i]].colour;
        tables.push(livingTable(mine, tick, this.maps.length > 1, (i) => this.pin(of, i), colourOf));
        for (const listener of momentListeners) listener(set, tick);
      }
      this.livingPlace.replaceChildren(...tables);
    };
    this.waiting = setTimeout(show, 60);
  }

  repaint() {
    for (const map of this.maps) {
      map.recolour();
      map.curvesView.canvas.now();
      map.side.canvas.now();
      map.axis.now();
    }
  }
}

/** A group's name in a legend: where a flame graph of the program's stacks is there, a link into it. */
function nameOfGroup(group, mode) {
  const name = element("span", { text: group.name, title: group.name });
  const flame = StacksPanel.latest;
  if (!flame || group.key === undefined || !["site", "operator", "root"].includes(mode)) return name;
  const who = group.name.split(" (")[0];
  const link = element("a", { class: "follow", href: "#panels", onclick: (event) => (event.preventDefault(), flame.follow("held", who)) });
  link.append(name);
  return element("span", {}, link);
}

const momentListeners = [];
