// SPDX-License-Identifier: Apache-2.0
// Curves of bytes above a map, on its time axis: live, held, resident; floors and caps as lines; passes; failures.

const ROLE_INK = { live: "live", held: "held-line", resident: "resident", other: "ink" };

/** A canvas at the screen's resolution, kept at the size of its element; `draw` gets the context and the size. */
class Canvas {
  constructor(height, label, draw) {
    this.element = element("canvas", { role: "img", "aria-label": label });
    this.element.style.height = `${height}px`;
    this.draw = draw;
    this.height = height;
    this.width = 0;
    this.frame = 0;
    new ResizeObserver(() => {
      if (this.element.clientWidth !== this.width) this.ask();
    }).observe(this.element);
  }
  setHeight(height) {
    this.height = height;
    this.element.style.height = `${height}px`;
  }
  /** Draws with the next frame. */
  ask() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.now());
  }
  now() {
    this.frame = 0;
    const width = this.element.clientWidth;
    if (width < 2) return; // hidden
    this.width = width;
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    this.element.width = Math.round(width * ratio);
    this.element.height = Math.round(this.height * ratio);
    const context = this.element.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "11px system-ui, sans-serif";
    this.draw(context, width, this.height);
  }
}

const BLOCK = 512;

/** The extremes of each block of a long curve's values. */
function blocksOf(values) {
  const count = Math.ceil(values.length / BLOCK);
  const tops = new Float64Array(count);
  const bottoms = new Float64Array(count);
  for (let block = 0; block < count; block++) {
    let top = -Infinity;
    let bottom = Infinity;
    const stop = Math.min((block + 1) * BLOCK, values.length);
    for (let k = block * BLOCK; k < stop; k++) {
      if (values[k] > top) top = values[k];
      if (values[k] < bottom) bottom = values[k];
    }
    tops[block] = top;
    bottoms[block] = bottom;
  }
  return { tops, bottoms };
}

/** Steps of a curve within a stretch of time, thinned to the extremes of each column of pixels. */
function stepColumns(times, values, t0, t1, width, blocks) {
  const tops = new Float64Array(width);
  const bottoms = new Float64Array(width).fill(Infinity);
  const scale = width / (t1 - t0);
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= t0) low = middle + 1;
    else high = middle;
  }
  let k = Math.max(low - 1, 0);
  let value = times.length && times[k] <= t0 ? values[k] : 0;
  if (times.length && times[k] <= t0) k++;
  for (let x = 0; x < width; x++) {
    let top = value;
    let bottom = value;
    const until = t0 + (x + 1) / scale;
    while (k < times.length && times[k] < until) {
      if (k % BLOCK === 0 && k + BLOCK <= times.length && times[k + BLOCK - 1] < until) {
        const block = k / BLOCK;
        if (blocks.tops[block] > top) top = blocks.tops[block];
        if (blocks.bottoms[block] < bottom) bottom = blocks.bottoms[block];
        k += BLOCK;
        value = values[k - 1];
        continue;
      }
      value = values[k++];
      if (value > top) top = value;
      if (value < bottom) bottom = value;
    }
    tops[x] = top;
    bottoms[x] = bottom;
  }
  return { tops, bottoms };
}

class Curves {
  /** `curves`: [{name, role, times, values}] in the view's time; `lines`: [[name, bytes]]. */
  constructor(view, curves, lines, passes, marks, timeText) {
    Object.assign(this, { view, curves, lines, passes, marks, timeText });
    this.canvas = new Canvas(118, "Bytes over time", (context, width, height) => this.draw(context, width, height));
    this.canvas.element.classList.add("curves");
    const target = this.canvas.element;
    let from = null;
    const time = (event) => {
      const box = target.getBoundingClientRect();
      return view.t0 + ((event.clientX - box.left) / Math.max(box.width, 1)) * (view.t1 - view.t0);
    };
    target.addEventListener("pointerdown", (event) => (from = time(event)));
    target.addEventListener("pointermove", (event) => {
      if (event.buttons === 1 && from !== null) view.setMoment(time(event));
    });
    target.addEventListener("pointerup", (event) => {
      if (from !== null) view.setMoment(time(event));
      from = null;
    });
    view.onChange(() => this.canvas.ask());
  }

  top() {
    let most = 1;
    for (const curve of this.curves) {
      curve.blocks ||= blocksOf(curve.values);
      for (const value of curve.blocks.tops) if (value > most) most = value;
    }
    for (const [, value] of this.lines) if (value > most && value < most * 4) most = value;
    return most;
  }

  draw(context, width, height) {
    const { view } = this;
    const bottom = height - 4;
    const room = bottom - 16;
    this.most ||= this.top();
    const y = (value) => bottom - (value / this.most) * room;
    const x = (time) => ((time - view.t0) / (view.t1 - view.t0)) * width;
    context.clearRect(0, 0, width, height);
    this.passes.forEach(([name, begin, end], index) => {
      const left = x(begin);
      const right = x(end);
      if (right < 0 || left > width) return;
      if (index % 2 === 0) {
        context.fillStyle = ink("band");
        context.fillRect(left, 0, Math.max(right - left, 1), height);
      }
      if (right - left > 60) {
        context.fillStyle = ink("muted");
        context.fillText(name, Math.max(left, 0) + 4, 10);
      }
    });
    context.textAlign = "left";
    for (const mark of ticksOf(0, this.most, 3, true)) {
      if (mark === 0) continue;
      context.fillStyle = ink("grid");
      context.fillRect(0, Math.round(y(mark)), width, 1);
    }
    for (const curve of this.curves) {
      const { role, times, values } = curve;
      const { tops, bottoms } = stepColumns(times, values, view.t0, view.t1, Math.max(Math.round(width), 1), curve.blocks);
      context.fillStyle = ink(ROLE_INK[role] || "ink");
      if (role === "live") {
        for (let at = 0; at < tops.length; at++) context.fillRect(at, y(tops[at]), 1, bottom - y(tops[at]));
        continue;
      }
      let before = tops.length ? y(bottoms[0]) : 0;
      for (let at = 0; at < tops.length; at++) {
        const high = Math.min(y(tops[at]), before);
        const low = Math.max(y(bottoms[at]), Math.min(before, bottom));
        context.fillRect(at, high - 0.75, 1, Math.max(low - high, 1.5));
        before = y(bottoms[at]);
      }
    }
    for (const [name, value] of this.lines) {
      if (value > this.most) continue;
      context.strokeStyle = ink("limit");
      context.setLineDash([4, 3]);
      context.beginPath();
      context.moveTo(0, y(value));
      context.lineTo(width, y(value));
      context.stroke();
      context.setLineDash([]);
      context.fillStyle = ink("limit");
      context.textAlign = "right";
      context.fillText(`${name} ${bytesText(value)}`, width - 4, y(value) - 3);
      context.textAlign = "left";
    }
    for (const [time, kind] of this.marks) {
      const at = x(time);
      if (at < -4 || at > width + 4) continue;
      context.fillStyle = kind === "failed" ? ink("bad") : ink("muted");
      context.beginPath();
      context.moveTo(at, bottom);
      context.lineTo(at - 4, height);
      context.lineTo(at + 4, height);
      context.fill();
      if (kind === "failed") context.fillRect(at - 0.5, 0, 1, bottom);
    }
    if (view.moment !== null) {
      context.fillStyle = ink("ink");
      context.fillRect(x(view.moment), 0, 1, height);
    }
  }
}
