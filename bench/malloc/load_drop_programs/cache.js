// SPDX-License-Identifier: Apache-2.0
// Node.js as a cache in front of something slow: buffers of many sizes, most of which expire. Marks as in marks.py.
"use strict";
const scale = Number(process.env.LOAD_DROP_SCALE || 1);
const settle = Number(process.env.LOAD_DROP_SETTLE || 6);
const cycles = Number(process.env.LOAD_DROP_CYCLES || 3);
let state = 12345;
const random = (below) => (state = (state * 1103515245 + 12345) % 2147483648) % below;
const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const cache = new Map();

async function mark(name) {
  console.log("phase " + name);
  await pause(0.2);
}

(async () => {
  for (let cycle = 1; cycle <= cycles; ++cycle) {
    for (let i = 0; i < 40000 * scale; ++i) {
      const buffer = Buffer.allocUnsafeSlow(200 + (random(2000) * random(2000) * cycle) / 1000);
      buffer.fill(1);
      cache.set(cycle * 1e9 + i, buffer);
    }
    await mark("full" + cycle);
    for (const key of [...cache.keys()]) if (random(10) !== 0) cache.delete(key);
    if (global.gc) global.gc();
    await pause(settle);
    await mark("settled" + cycle);
  }
})();
