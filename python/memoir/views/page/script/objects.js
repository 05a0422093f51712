// SPDX-License-Identifier: Apache-2.0
// The objects of one trace, plan or simulation, by number in order of birth, and what follows from their columns. Where the
// page has not all of them, one of `count` above 1 is a rectangle that stands for several; what is said of them all then
// comes from `exact`, which exact.py summed before (see there), and moments are those that it kept.

const NO_OBJECT = 0xffffffff;
class ObjectSet {
  static async read(data, columns) {
    const set = new ObjectSet();
    Object.assign(set, { count: data.count, ticks: data.ticks, unit: data.unit, frames: data.frames, owners: data.owners });
    Object.assign(set, { objects: data.objects, merged: data.merged, knowsSites: data.knowsSites, cut: data.cut });
    Object.assign(set, { lifetimes: data.lifetimes, predictions: data.predictions, passes: data.passes, quantum: data.quantum, openEnded: data.openEnded });
    set.columns = await columns.getAll(data.columns);
    set.exact = {};
    for (const [kind, keys] of Object.entries(data.exact)) set.exact[kind] = await columns.getAll(keys);
    if (data.countUnit > 1) {
      for (const one of [set.columns, ...Object.values(set.exact)]) {
        if (one.count) one.count = Float64Array.from(one.count, (count) => count / data.countUnit);
      }
    }
    set.moments = set.exact.moments || null;
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

  /** Bytes live from each tick of `liveTick` on, all ticks where it is null: the curve, its peak. */
  readLive() {
    this.liveTick = null;
    if (this.moments) {
      const { tick, bytes } = this.moments;
      let highest = 0;
      for (let k = 1; k < bytes.length; k++) if (bytes[k] > bytes[highest]) highest = k;
      Object.assign(this, { peak: bytes[highest], peakTick: tick[highest], liveTick: tick, liveAt: bytes });
      return;
    }
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

  /** The place in `moments` of the nearest to a tick. */
  momentNear(tick) {
    const ticks = this.moments.tick;
    let low = 0;
    let high = ticks.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ticks[middle] < tick) low = middle + 1;
      else high = middle;
    }
    return low > 0 && tick - ticks[low - 1] <= ticks[low] - tick ? low - 1 : low;
  }
  /** The tick that is shown for a tick. */
  snap(tick) {
    return this.moments ? this.moments.tick[this.momentNear(tick)] : tick;
  }
  /** The moment before or after one. */
  stepped(tick, step) {
    if (!this.moments) return Math.min(Math.max(tick + step, 0), this.ticks - 1);
    const { tick: ticks } = this.moments;
    return ticks[Math.min(Math.max(this.momentNear(tick) + step, 0), ticks.length - 1)];
  }

  number(i) {
    return this.columns.number ? this.columns.number[i] : i;
  }
  title(i) {
    if (this.countOf(i) > 1) return plural(this.countOf(i), "merged object");
    if (this.merged && !this.columns.number) return `Object born at ${this.unit} ${countText(this.born[i])}`;
    return `Object ${countText(this.number(i))}`;
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

  /** -1 where it is not known: of objects merged under the site of the largest, too. */
  siteOf(i) {
    return this.site && (this.knowsSites || this.countOf(i) === 1) ? this.site[i] : -1;
  }
  /** How many objects a site has, and bytes. */
  sumOf(isOfSite) {
    let count = 0;
    let bytes = 0;
    const { sums } = this.exact;
    if (sums) {
      for (let site = 0; site < sums.count.length; site++) {
        if (!isOfSite(site)) continue;
        count += sums.count[site];
        bytes += sums.allocated[site];
      }
      return { count, bytes };
    }
    for (let i = 0; i < this.count; i++) {
      if (!isOfSite(this.site[i])) continue;
      count += this.countOf(i);
      bytes += this.bytes[i];
    }
    return { count, bytes };
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
    return `${this.spanText(this.timeOf(this.died[i]) - this.timeOf(this.born[i]))} (${ticks})`;
  }
  /** A length of time, as far as times are known. */
  spanText(span) {
    if (this.quantum === 1) return durationText(span);
    return span < 100 * this.quantum ? `under ${durationText((span + this.quantum) * 1.01)}` : `about ${durationText(span)}`;
  }
  momentText(tick) {
    const at = `${this.unit} ${countText(Math.floor(tick))}`;
    if (!this.time) return at;
    const near = this.moments ? this.momentNear(tick) : -1;
    const known = near >= 0 && this.moments.tick[near] === tick;
    return `${known ? durationText(this.moments.time[near]) : this.spanText(this.timeOf(tick))} (${at})`;
  }

  /** All that one line says of an object. */
  text(i) {
    const parts = [];
    const count = this.countOf(i);
    if (count > 1 && this.merged) {
      parts.push(`${countText(count)} merged objects, ${bytesText(this.bytes[i])} in all`);
      if (this.siteOf(i) >= 0) parts.push(this.siteText(this.site[i]));
      return parts.join(" · ");
    }
    parts.push(count > 1 ? `${plural(count, "object")}, ${bytesText(this.bytes[i])}` : bytesText(this.size[i]));
    if (this.site) parts.push(this.siteText(this.site[i]));
    parts.push(`lives ${this.lifetimeText(i)}`);
    if (this.columns.thread) parts.push(`thread ${this.columns.thread[i]}`);
    if (this.columns.stream) parts.push(`stream ${this.columns.stream[i]}`);
    if (this.columns.pass && this.columns.pass[i]) parts.push(this.passes[this.columns.pass[i] - 1][0]);
    return parts.join(" · ");
  }

  /**
   * Who lives at a tick, largest first: {objects, bytes, all, merged}; at most `most` objects. Of merged ones nobody
   * knows who lives: `merged` says how many do, and their bytes.
   */
  livingAt(tick, most) {
    const found = [];
    let bytes = 0;
    for (let i = 0; i < this.count; i++) {
      if (this.born[i] > tick) break;
      if (this.died[i] > tick && !(this.merged && this.countOf(i) > 1)) {
        found.push(i);
        bytes += this.bytes[i];
      }
    }
    found.sort((a, b) => this.bytes[b] - this.bytes[a] || a - b);
    const objects = found.slice(0, most);
    if (!this.moments) return { objects, bytes, all: found.length, merged: { count: 0, bytes: 0 } };
    const at = this.momentNear(tick);
    const [all, total] = [this.moments.count[at], this.moments.bytes[at]];
    return { objects, bytes: total, all, merged: { count: all - found.length, bytes: total - bytes } };
  }
}
