// SPDX-License-Identifier: Apache-2.0
// The objects of one trace, plan or simulation, by number in order of birth, and what follows from their columns.

const NO_OBJECT = 0xffffffff;
class ObjectSet {
  static async read(data, columns) {
    const set = new ObjectSet();
    Object.assign(set, { count: data.count, ticks: data.ticks, unit: data.unit, frames: data.frames, owners: data.owners });
    Object.assign(set, { lifetimes: data.lifetimes, predictions: data.predictions, passes: data.passes, quantum: data.quantum, openEnded: data.openEnded });
    const names = Object.keys(data.columns);
    const values = await Promise.all(names.map((name) => columns.get(data.columns[name])));
    set.columns = Object.fromEntries(names.map((name, index) => [name, values[index]]));
    const { born, life } = set.columns;
    set.born = born;
    set.died = new Float64Array(set.count);
    for (let i = 0; i < set.count; i++) set.died[i] = born[i] + life[i];
    delete set.columns.life;
    set.size = set.columns.size;
    set.bytes = set.columns.bytes || set.size; // of merged objects, without the holes between them
    set.site = set.columns.site || null;
    set.siteFrame = set.columns.siteFrame;
    set.siteParent = set.columns.siteParent; // + 1
    if (set.columns.time) for (let i = 0; i < set.columns.time.length; i++) set.columns.time[i] *= set.quantum;
    set.time = set.columns.time || null;
    set.readLive();
    return set;
  }

  /** Bytes live from each tick on, by tick: the curve, its peak. */
  readLive() {
    const change = new Float64Array(this.ticks + 1);
    const { born, died, bytes, count } = this;
    for (let i = 0; i < count; i++) {
      change[born[i]] += bytes[i];
      change[died[i]] -= bytes[i];
    }
    let live = 0;
    this.peak = 0;
    this.peakTick = 0;
    for (let tick = 0; tick <= this.ticks; tick++) {
      live += change[tick];
      change[tick] = live;
      if (live > this.peak && tick < this.ticks) {
        this.peak = live;
        this.peakTick = tick;
      }
    }
    // What was never freed lives to the end of the picture.
    if (this.ticks > 0) change[this.ticks] = change[this.ticks - 1];
    this.liveAt = change;
  }

  number(i) {
    return this.columns.number ? this.columns.number[i] : i;
  }
  countOf(i) {
    return this.columns.count ? this.columns.count[i] : 1;
  }
  neverFreed(i) {
    return this.openEnded && this.died[i] >= this.ticks;
  }
  isTemporary(i) {
    return this.died[i] - this.born[i] <= 1 && !this.neverFreed(i);
  }
  timeOf(tick) {
    return this.time ? this.time[Math.min(Math.max(Math.floor(tick), 0), this.time.length - 1)] : tick;
  }

  /** Names of a site, innermost first. */
  stack(site) {
    const names = [];
    for (let at = site; at >= 0 && names.length < 512; at = this.siteParent[at] - 1) {
      names.push(this.frames[this.siteFrame[at]]);
    }
    return names;
  }

  /** Two frames that tell a site: the one that asked, which is the innermost of the program's own, and its caller there. */
  siteText(site) {
    if (site < 0) return "(no site)";
    const owners = [];
    const names = [];
    for (let at = site; at >= 0 && names.length < 512; at = this.siteParent[at] - 1) {
      names.push(this.frames[this.siteFrame[at]]);
      owners.push(this.owners[this.siteFrame[at]]);
    }
    const lowest = Math.min(...owners);
    const told = names.filter((name, index) => owners[index] === lowest);
    return told.slice(0, 2).map(shortFrame).join(" < ");
  }

  siteOf(i) {
    return this.site ? this.site[i] : -1;
  }
  rootOf(site) {
    while (this.siteParent[site] > 0) site = this.siteParent[site] - 1;
    return this.siteFrame[site];
  }

  lifetimeText(i) {
    if (this.neverFreed(i)) return "never freed";
    const span = this.died[i] - this.born[i];
    const ticks = `${plural(span, this.unit)}`;
    if (!this.time) return ticks;
    return `${durationText(this.timeOf(this.died[i]) - this.timeOf(this.born[i]))} (${ticks})`;
  }
  momentText(tick) {
    const at = `${this.unit} ${countText(Math.floor(tick))}`;
    return this.time ? `${durationText(this.timeOf(tick))} (${at})` : at;
  }

  /** All that one line says of an object. */
  text(i) {
    const parts = [];
    const count = this.countOf(i);
    parts.push(count > 1 ? `${countText(count)} merged objects, ${bytesText(this.bytes[i])}` : bytesText(this.size[i]));
    if (this.site) parts.push(this.siteText(this.site[i]));
    parts.push(`lives ${this.lifetimeText(i)}`);
    if (this.columns.thread) parts.push(`thread ${this.columns.thread[i]}`);
    if (this.columns.stream) parts.push(`stream ${this.columns.stream[i]}`);
    if (this.columns.pass && this.columns.pass[i]) parts.push(this.passes[this.columns.pass[i] - 1][0]);
    return parts.join(" · ");
  }

  /** Who lives at a tick, largest first: {objects, bytes, all}; at most `most` objects. */
  livingAt(tick, most) {
    const found = [];
    let bytes = 0;
    for (let i = 0; i < this.count; i++) {
      if (this.born[i] > tick) break;
      if (this.died[i] > tick) {
        found.push(i);
        bytes += this.bytes[i];
      }
    }
    const all = found.length;
    found.sort((a, b) => this.bytes[b] - this.bytes[a] || a - b);
    return { objects: found.slice(0, most), bytes, all };
  }
}
