// SPDX-License-Identifier: Apache-2.0
// Next to a map, on its address axis, at one moment: what is held, what is live in it, the free holes by size; and the
// axis itself, with the breaks between stretches of addresses.

class Side {
  constructor(view, map) {
    Object.assign(this, { view, map });
    this.canvas = new Canvas(map.pixels, "Segments and free holes", (context, width, height) =>
      this.draw(context, width, height),
    );
    this.canvas.element.classList.add("side");
    view.onChange(() => this.canvas.ask());
  }

  /** Free stretches of held memory at a tick: [[at, size]], by address. Without segments: below the highest object. */
  static holes(map, tick) {
    if (map.holesAt !== tick) {
      map.holesAt = tick;
      map.holesThen = Side.findHoles(map, tick);
    }
    return map.holesThen;
  }

  static findHoles(map, tick) {
    const { set, low, segments, height } = map;
    const live = [];
    for (let i = 0; i < set.count && set.born[i] <= tick; i++) {
      if (set.died[i] > tick && low[i] <= height) live.push([low[i], low[i] + set.size[i]]);
    }
    live.sort((a, b) => a[0] - b[0]);
    const held = [];
    for (let k = 0; k < segments.at.length; k++) {
      if (segments.born[k] <= tick && segments.died[k] > tick) held.push([segments.at[k], segments.at[k] + segments.size[k]]);
    }
    if (!segments.at.length && live.length) held.push([0, map.top || live.reduce((most, one) => Math.max(most, one[1]), 0)]);
    held.sort((a, b) => a[0] - b[0]);
    if (map.data.joined) {
      for (let k = held.length - 1; k > 0; k--) {
        if (held[k - 1][1] === held[k][0]) held[k - 1][1] = held.splice(k, 1)[0][1];
      }
    }
    const holes = [];
    let k = 0;
    let reached = 0; // what the object that reaches furthest leaves of the next stretch
    for (const [from, to] of held) {
      let at = Math.max(from, reached);
      while (k < live.length && live[k][0] < to) {
        if (live[k][0] > at) holes.push([at, live[k][0] - at]);
        at = Math.max(at, live[k][1]);
        k++;
      }
      if (at < to) holes.push([at, to - at]);
      reached = at;
    }
    return { holes, held, live };
  }

  draw(context, width, height) {
    const { view, map } = this;
    const y = (at) => height - ((at - view.a0) / (view.a1 - view.a0)) * height;
    context.clearRect(0, 0, width, height);
    const tick = map.momentTick();
    const { holes, held, live } = Side.holes(map, tick);
    const column = (rows, left, wide, colour) => {
      context.fillStyle = colour;
      for (const [from, to] of rows) {
        const top = y(to);
        context.fillRect(left, top, wide, Math.max(y(from) - top, 0.7));
      }
    };
    column(held, 0, 14, ink("held"));
    column(live, 0, 14, ink("live"));
    context.fillStyle = ink("paper");
    for (const [from] of held) if (from > 0) context.fillRect(0, y(from), 14, 1);
    const largest = holes.reduce((most, hole) => Math.max(most, hole[1]), 1);
    context.fillStyle = ink("hole");
    for (const [at, size] of holes) {
      const top = y(at + size);
      context.fillRect(18, top, Math.max((size / largest) * 22, 1), Math.max(y(at) - top, 0.7));
    }
    context.fillStyle = ink("muted");
    context.textAlign = "left";
    let free = -Infinity; // where the last address ended, from the top
    for (const [at, , address] of [...map.breaks].reverse()) {
      const line = Math.round(y(at)) + 1;
      if (line < 0 || line > height) continue;
      context.fillStyle = ink("muted");
      for (let dot = 0; dot < width; dot += 4) context.fillRect(dot, line, 2, 1);
      if (map.spans.length > 12 || line < 14 || line - free < 12) continue;
      // Neighbours differ in their last digits.
      context.fillText(address.length > 7 ? `…${address.slice(-7)}` : `0x${address}`, 44, line - 3);
      free = line;
    }
    if (holes.length && width > 60 && !map.set.merged) {
      const [at, size] = holes.reduce((most, hole) => (hole[1] > most[1] ? hole : most));
      const line = Math.min(Math.max(y(at + size / 2), 12), height - 4);
      if (y(at + size) > height || y(at) < 0) return; // out of sight
      context.fillStyle = ink("ink");
      context.fillText(bytesText(size), 44, line + 4);
    }
  }
}
