// SPDX-License-Identifier: Apache-2.0
// What part of a map is seen, shared by maps that are linked: a stretch of time and one of addresses.

const MOST_ZOOM = 1e7;

class View {
  constructor(span, height) {
    Object.assign(this, { span, height, t0: 0, t1: span, a0: 0, a1: height });
    this.moment = null; // the tick that is brushed
    this.snap = (moment) => moment; // to one of which all is known
    this.listeners = [];
  }
  onChange(listener) {
    this.listeners.push(listener);
  }
  changed(what) {
    for (const listener of this.listeners) listener(what);
  }
  reset() {
    Object.assign(this, { t0: 0, t1: this.span, a0: 0, a1: this.height });
    this.changed("all");
  }
  isWhole() {
    return this.t0 <= 0 && this.t1 >= this.span && this.a0 <= 0 && this.a1 >= this.height;
  }
  /** Another unit of time: the same stretch of it as far as is known. */
  setSpan(span) {
    this.t0 *= span / this.span;
    this.t1 *= span / this.span;
    this.span = span;
    this.changed("all");
  }
  setTimes(t0, t1) {
    const width = Math.min(Math.max(t1 - t0, this.span / MOST_ZOOM), this.span);
    this.t0 = Math.min(Math.max(t0, 0), this.span - width);
    this.t1 = this.t0 + width;
  }
  setAddresses(a0, a1) {
    const high = Math.min(Math.max(a1 - a0, this.height / MOST_ZOOM), this.height);
    this.a0 = Math.min(Math.max(a0, 0), this.height - high);
    this.a1 = this.a0 + high;
  }
  /** By so much around a point given as shares of the picture. */
  zoom(byTime, byAddress, x, y) {
    const t = this.t0 + x * (this.t1 - this.t0);
    const a = this.a0 + y * (this.a1 - this.a0);
    if (byTime !== 1) this.setTimes(t - (t - this.t0) / byTime, t + (this.t1 - t) / byTime);
    if (byAddress !== 1) this.setAddresses(a - (a - this.a0) / byAddress, a + (this.a1 - a) / byAddress);
    this.changed("gesture");
  }
  /** By shares of the picture. */
  pan(x, y) {
    const t = x * (this.t1 - this.t0);
    const a = y * (this.a1 - this.a0);
    this.setTimes(this.t0 + t, this.t1 + t);
    this.setAddresses(this.a0 + a, this.a1 + a);
    this.changed("gesture");
  }
  setMoment(moment) {
    this.moment = this.snap(moment);
    this.changed("moment");
  }
}

/** The link between two maps: the second follows the first's stretch of time, as shares of its own. */
function linkViews(one, other) {
  let busy = false;
  const follow = (from, to) => (what) => {
    if (busy) return;
    busy = true;
    const scale = to.span / from.span;
    to.setTimes(from.t0 * scale, from.t1 * scale);
    const up = to.height / from.height;
    to.setAddresses(from.a0 * up, from.a1 * up);
    to.moment = from.moment === null ? null : to.snap(from.moment * scale);
    to.changed(what);
    busy = false;
  };
  one.onChange(follow(one, other));
  other.onChange(follow(other, one));
}

/** Panning, zooming, pinching and keys over an element; `size()` gives its pixels, `tap` is a click. */
function listenToGestures(target, view, size, { tap, hover, leave, move }) {
  const pointers = new Map();
  let moved = 0;
  const share = (event) => {
    const box = target.getBoundingClientRect();
    return [(event.clientX - box.left) / Math.max(box.width, 1), 1 - (event.clientY - box.top) / Math.max(box.height, 1)];
  };
  target.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.shiftKey && !event.altKey && document.activeElement !== target && view.isWhole()) {
        if (event.deltaY > 0) return; // the page scrolls on: there is nothing to zoom out of
      }
      event.preventDefault();
      const [x, y] = share(event);
      const delta = event.deltaY || event.deltaX;
      const by = Math.exp(-Math.max(Math.min(delta, 240), -240) / 400);
      if (event.shiftKey) view.zoom(1, by, x, y);
      else if (event.altKey) view.zoom(by, 1, x, y);
      else view.zoom(by, by, x, y);
    },
    { passive: false },
  );
  target.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    moved = 0;
    try {
      target.setPointerCapture(event.pointerId);
    } catch {
      // a pointer that is gone already
    }
  });
  target.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) {
      hover(...share(event), event);
      return;
    }
    const { width, height } = size();
    const dx = (event.clientX - before.x) / Math.max(width, 1);
    const dy = (event.clientY - before.y) / Math.max(height, 1);
    moved += Math.abs(event.clientX - before.x) + Math.abs(event.clientY - before.y);
    if (pointers.size === 2) {
      const other = [...pointers.entries()].find(([id]) => id !== event.pointerId)[1];
      const far = (a, b) => Math.max(Math.hypot(a.x - b.x, a.y - b.y), 8);
      const by = far({ x: event.clientX, y: event.clientY }, other) / far(before, other);
      const [x, y] = share({ clientX: (event.clientX + other.x) / 2, clientY: (event.clientY + other.y) / 2 });
      view.zoom(by, by, x, y);
    } else if (moved > 4) {
      view.pan(-dx, dy);
    }
    pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  });
  const up = (event) => {
    const was = pointers.delete(event.pointerId);
    if (was && event.type === "pointerup" && moved <= 4 && pointers.size === 0) tap(...share(event), event);
  };
  target.addEventListener("pointerup", up);
  target.addEventListener("pointercancel", up);
  target.addEventListener("pointerleave", leave);
  target.addEventListener("dblclick", (event) => view.zoom(2.5, 2.5, ...share(event)));
  target.addEventListener("keydown", (event) => {
    const step = event.shiftKey ? 0.5 : 0.1;
    const keys = {
      ArrowLeft: () => view.pan(-step, 0),
      ArrowRight: () => view.pan(step, 0),
      ArrowUp: () => view.pan(0, step),
      ArrowDown: () => view.pan(0, -step),
      "+": () => view.zoom(1.5, 1.5, 0.5, 0.5),
      "=": () => view.zoom(1.5, 1.5, 0.5, 0.5),
      "-": () => view.zoom(1 / 1.5, 1 / 1.5, 0.5, 0.5),
      0: () => view.reset(),
      Home: () => view.reset(),
    };
    const act = keys[event.key] || (move && move(event.key));
    if (!act || event.ctrlKey || event.metaKey) return;
    act();
    event.preventDefault();
  });
}
