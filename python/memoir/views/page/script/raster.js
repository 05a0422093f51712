// SPDX-License-Identifier: Apache-2.0
// The heap map as a buffer of object numbers, a number a pixel; colours come after. What is under the pointer is then a
// look-up, and a picture is the same to the byte wherever it is drawn.
//
// An object covers the columns from floor(x(born)) to floor(x(died)), at least one, and rows likewise, counted from the
// lowest address. Objects are drawn in a fixed order: by the class floor(log2(size x lifetime)), then by birth; so a
// larger one is never hidden by one that is smaller than a pixel.

const HELD = 0xfffffffe; // held memory with no object in it
const HIGH_WORD = new Uint8Array(new Uint16Array([1]).buffer)[0]; // of a double: the second on little-endian machines
const CHUNK = 256;
const LEVELS = 3;
const LEVEL_COLUMNS = 512;
const LEVEL_ROWS = 256;
const FEW = 50000; // objects: they are all drawn, always
const MOST_QUICK = 200000; // objects that a gesture draws, the largest

class Raster {
  /** `low`: where each object is drawn, `height`: of the axis; `segments`: {at, size, born, died}. */
  constructor(set, low, height, segments) {
    Object.assign(this, { set, low, height, segments });
    this.inTime = false;
    this.sort();
  }

  get span() {
    return this.inTime ? Math.max(this.set.timeOf(this.set.ticks), 1) : Math.max(this.set.ticks, 1);
  }

  /** Objects in drawing order, with their corners side by side. */
  sort() {
    const { set, low, height } = this;
    const { size, born, died } = set;
    const real = new Float64Array(1);
    const words = new Uint32Array(real.buffer);
    const classes = new Uint8Array(set.count);
    const starts = new Uint32Array(130);
    for (let i = 0; i < set.count; i++) {
      const placed = size[i] > 0 && low[i] + size[i] <= height;
      const life = died[i] - born[i];
      real[0] = size[i] * (life > 1 ? life : 1);
      classes[i] = placed ? (words[HIGH_WORD] >>> 20) - 1022 : 0; // floor(log2) + 1, from the number's exponent
      starts[classes[i] + 1]++;
    }
    const left = starts[1];
    for (let k = 1; k < 130; k++) starts[k] += starts[k - 1];
    const order = new Uint32Array(set.count);
    for (let i = 0; i < set.count; i++) order[starts[classes[i]]++] = i;
    this.order = order.subarray(left);
    this.left = left;
    this.count = this.order.length;
    this.bottom = new Float64Array(this.count);
    this.top = new Float64Array(this.count);
    for (let k = 0; k < this.count; k++) {
      const i = this.order[k];
      this.bottom[k] = low[i];
      this.top[k] = low[i] + size[i];
    }
    this.setTimes();
  }

  setTimes() {
    const { set, inTime, order } = this;
    const at = inTime ? (tick) => set.timeOf(tick) : (tick) => tick;
    const { born, died, time } = set;
    const begin = new Float64Array(this.count);
    const end = new Float64Array(this.count);
    if (inTime) {
      for (let k = 0; k < this.count; k++) {
        begin[k] = time[born[order[k]]];
        end[k] = time[died[order[k]]];
      }
    } else {
      for (let k = 0; k < this.count; k++) {
        begin[k] = born[order[k]];
        end[k] = died[order[k]];
      }
    }
    Object.assign(this, { begin, end });
    this.rows = this.segmentRows(at);
    this.bounds();
    this.levels = [];
  }

  segmentRows(at) {
    const { segments } = this;
    const rows = [];
    for (let k = 0; k < segments.at.length; k++) {
      rows.push([at(segments.born[k]), at(segments.died[k]), segments.at[k], segments.at[k] + segments.size[k]]);
    }
    return rows;
  }

  setInTime(inTime) {
    if (this.inTime === inTime) return;
    this.inTime = inTime;
    this.setTimes();
  }

  /** Of each chunk of the order: first begin, last end, lowest and highest address. */
  bounds() {
    const chunks = Math.ceil(this.count / CHUNK);
    this.bound = new Float64Array(4 * chunks);
    const { begin, end, bottom: lows, top: tops } = this;
    for (let chunk = 0; chunk < chunks; chunk++) {
      let first = Infinity;
      let last = -Infinity;
      let bottom = Infinity;
      let top = -Infinity;
      const stop = Math.min((chunk + 1) * CHUNK, this.count);
      for (let k = chunk * CHUNK; k < stop; k++) {
        if (begin[k] < first) first = begin[k];
        if (end[k] > last) last = end[k];
        if (lows[k] < bottom) bottom = lows[k];
        if (tops[k] > top) top = tops[k];
      }
      this.bound.set([first, last, bottom, top], 4 * chunk);
    }
  }

  /** For gestures: what is left when objects that share a cell are merged, in cells of 1/512 and finer. */
  makeLevels() {
    if (this.levels.length || this.count <= FEW) return;
    const { begin, end, bottom, top, count } = this;
    for (let level = 0; level < LEVELS; level++) {
      const columns = LEVEL_COLUMNS << level;
      const rows = LEVEL_ROWS << level;
      const across = columns / this.span;
      const up = rows / this.height;
      const last = new Int32Array((columns + 1) * (rows + 1)).fill(-1);
      const dropped = new Uint8Array(count);
      for (let k = 0; k < count; k++) {
        const x = Math.floor(begin[k] * across);
        const y = Math.floor(bottom[k] * up);
        const wide = Math.floor(end[k] * across) - x;
        const high = Math.floor(top[k] * up) - y;
        if (wide > 1 && high > 1) continue;
        const cell = y * (columns + 1) + x;
        const other = last[cell];
        if (other >= 0 && end[other] * across < x + Math.max(wide, 1) && top[other] * up < y + Math.max(high, 1)) {
          dropped[other] = 1;
        }
        last[cell] = k;
      }
      const kept = new Uint32Array(count);
      let size = 0;
      for (let k = 0; k < count; k++) if (!dropped[k]) kept[size++] = k;
      this.levels.push(kept.slice(0, size));
    }
  }

  /** The level whose cells are no larger than a pixel; null: all objects. */
  levelFor(view, width, height) {
    const across = (width * this.span) / (view.t1 - view.t0);
    const up = (height * this.height) / (view.a1 - view.a0);
    for (let level = 0; level < this.levels.length; level++) {
      if (LEVEL_COLUMNS << level >= across * 0.7 && LEVEL_ROWS << level >= up * 0.7) return this.levels[level];
    }
    return null;
  }

  /**
   * Fills `ids` (width x height) with object numbers. `quick`: from the merged levels. Counts what it drew:
   * {drawn, small}, small being those that are less than a pixel wide or high.
   */
  draw(ids, width, height, view, quick = false) {
    ids.fill(NO_OBJECT);
    const found = { drawn: 0, small: 0 };
    const sx = width / (view.t1 - view.t0);
    const sy = height / (view.a1 - view.a0);
    for (const [begin, end, bottom, top] of this.rows) {
      if (end <= view.t0 || begin >= view.t1 || top <= view.a0 || bottom >= view.a1) continue;
      const x0 = Math.max(Math.floor((begin - view.t0) * sx), 0);
      const x1 = Math.min(Math.max(Math.floor((end - view.t0) * sx), x0 + 1), width);
      const y0 = Math.max(Math.floor((bottom - view.a0) * sy), 0);
      const y1 = Math.min(Math.max(Math.floor((top - view.a0) * sy), y0 + 1), height);
      for (let y = y0; y < y1; y++) ids.fill(HELD, (height - 1 - y) * width + x0, (height - 1 - y) * width + x1);
    }
    const level = quick ? this.levelFor(view, width, height) : null;
    if (level) {
      const first = Math.max(level.length - MOST_QUICK, 0);
      this.drawSome(ids, width, height, view, sx, sy, level, first, level.length, found);
      return found;
    }
    const { bound } = this;
    for (let chunk = 0; 4 * chunk < bound.length; chunk++) {
      const at = 4 * chunk;
      if (bound[at] >= view.t1 || bound[at + 1] < view.t0 || bound[at + 2] >= view.a1 || bound[at + 3] <= view.a0) {
        continue;
      }
      const stop = Math.min((chunk + 1) * CHUNK, this.count);
      this.drawSome(ids, width, height, view, sx, sy, null, chunk * CHUNK, stop, found);
    }
    return found;
  }

  drawSome(ids, width, height, view, sx, sy, list, from, to, found) {
    const { begin, end, bottom, top, order } = this;
    const { t0, t1, a0, a1 } = view;
    let drawn = 0;
    let small = 0;
    for (let j = from; j < to; j++) {
      const k = list === null ? j : list[j];
      const b = begin[k];
      if (b >= t1) continue;
      const e = end[k];
      if (e < t0) continue;
      const low = bottom[k];
      if (low >= a1) continue;
      const high = top[k];
      if (high <= a0) continue;
      let x0 = Math.floor((b - t0) * sx);
      let x1 = Math.floor((e - t0) * sx);
      let y0 = Math.floor((low - a0) * sy);
      let y1 = Math.floor((high - a0) * sy);
      drawn++;
      if (x1 <= x0 || y1 <= y0) {
        small++;
        if (x1 <= x0) x1 = x0 + 1;
        if (y1 <= y0) y1 = y0 + 1;
      }
      if (x0 < 0) x0 = 0;
      if (y0 < 0) y0 = 0;
      if (x1 > width) x1 = width;
      if (y1 > height) y1 = height;
      const id = order[k];
      for (let y = y0; y < y1; y++) {
        const row = (height - 1 - y) * width;
        if (x1 - x0 > 24) ids.fill(id, row + x0, row + x1);
        else for (let x = row + x0; x < row + x1; x++) ids[x] = id;
      }
    }
    found.drawn += drawn;
    found.small += small;
  }
}

/**
 * Colours of a buffer of numbers. `table`: a pixel for each group; `faded` the same for objects that are not selected;
 * `selected`: by site, null for all. Where an object ends, and it is more than a pixel or two, it gets an edge.
 */
function colourPixels(pixels, ids, width, height, groups, colours, selected, sites, edges) {
  const { paper, held, table, faded, edge } = colours;
  for (let y = 0, p = 0; y < height; y++) {
    for (let x = 0; x < width; x++, p++) {
      const id = ids[p];
      if (id >= HELD) {
        pixels[p] = id === HELD ? held : paper;
        continue;
      }
      const group = groups[id];
      if (selected !== null && !selected[sites[id]]) {
        pixels[p] = faded[group];
        continue;
      }
      const right = edges && x >= 3 && x < width - 1 && ids[p + 1] !== id && ids[p - 1] === id && ids[p - 3] === id;
      const below = edges && y >= 3 && y < height - 1 && ids[p + width] !== id && ids[p - 3 * width] === id;
      pixels[p] = right || below ? edge[group] : table[group];
    }
  }
}
