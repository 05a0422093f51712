// SPDX-License-Identifier: Apache-2.0
// What colour an object has: a mode gives each object a group, a group has a name and a colour. The colours were chosen
// so that any two stay apart for readers who see no red, no green or no blue (tests/views/test_palette.py).

const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7b4fb5"];
const OTHER = "#9aa3ad";
const BEFORE = "#c4b8a8";
const RAMP = ["#f7e225", "#fdb52e", "#f58c46", "#e16462", "#c5407e", "#9c179e", "#7201a8", "#4c02a1"];
const MARKED = "#ff2d55";

/** [mode, its name] for every mode that this set has something for. */
function modesOf(set) {
  const modes = [];
  const named = set.site && set.frames.length > set.count / 2; // hardly two of one name: their sizes say more
  if (named) modes.push(["size", "size"]);
  if (set.site) modes.push(["site", "site"]);
  if (set.site && set.siteParent.some((parent) => parent > 0)) {
    modes.push(["operator", "innermost frame"], ["root", "outermost frame"]);
  }
  if (!named) modes.push(["size", "size"]);
  if (set.columns.lifetime) modes.push(["lifetime", "lifetime"]);
  if (set.columns.pass) modes.push(["pass", "pass"]);
  if (set.columns.thread) modes.push(["thread", "thread"]);
  if (set.columns.stream) modes.push(["stream", "stream"]);
  if (set.columns.predicted) modes.push(["predicted", "predicted against true lifetime"]);
  return modes;
}

/** {groups: Uint8Array by object, legend: [{name, colour, bytes, note}]} of a mode. */
function colouring(set, mode) {
  set.colourings ||= new Map();
  if (!set.colourings.has(mode)) set.colourings.set(mode, makeColouring(set, mode));
  return set.colourings.get(mode);
}

function makeColouring(set, mode) {
  if (mode === "size") return bySize(set);
  if (mode === "lifetime") return byClass(set, set.columns.lifetime, set.lifetimes, 4);
  if (mode === "predicted") return byClass(set, set.columns.predicted, set.predictions || [], -1);
  const { keyOf, nameOf } = keysOf(set, mode);
  return ranked(set, keyOf, nameOf);
}

function keysOf(set, mode) {
  if (mode === "site") return { keyOf: (i) => set.site[i], nameOf: (key) => set.siteText(key) };
  const frame = (key) => set.frames[key];
  if (mode === "operator") return { keyOf: (i) => set.siteFrame[set.site[i]], nameOf: frame };
  if (mode === "root") {
    const roots = new Map();
    const keyOf = (i) => {
      const site = set.site[i];
      if (!roots.has(site)) roots.set(site, set.rootOf(site));
      return roots.get(site);
    };
    return { keyOf, nameOf: frame };
  }
  const values = set.columns[mode];
  const nameOf = mode === "pass" ? (key) => (key ? set.passes[key - 1][0] : "outside passes") : (key) => `${mode} ${key}`;
  return { keyOf: (i) => values[i], nameOf };
}

/** Colours go to the keys with the most bytes at the peak, then with the most in all. */
function ranked(set, keyOf, nameOf) {
  const sums = new Map();
  for (let i = 0; i < set.count; i++) {
    const key = keyOf(i);
    let sum = sums.get(key);
    if (!sum) sums.set(key, (sum = { key, peak: 0, all: 0, first: i }));
    sum.all += set.bytes[i];
    if (set.born[i] <= set.peakTick && set.died[i] > set.peakTick) sum.peak += set.bytes[i];
  }
  const order = [...sums.values()].sort((a, b) => b.peak - a.peak || b.all - a.all || a.first - b.first);
  const shown = order.length > PALETTE.length ? PALETTE.length : order.length;
  const groupOf = new Map(order.map((sum, index) => [sum.key, Math.min(index, PALETTE.length)]));
  const legend = order.slice(0, shown).map((sum, index) => ({
    name: nameOf(sum.key),
    colour: PALETTE[index],
    note: `${bytesText(sum.peak)} at the peak`,
  }));
  if (order.length > shown) {
    const rest = order.slice(shown).reduce((total, sum) => total + sum.peak, 0);
    const note = `${bytesText(rest)} at the peak`;
    legend.push({ name: `${countText(order.length - shown)} others`, colour: OTHER, note });
  }
  const groups = new Uint8Array(set.count);
  for (let i = 0; i < set.count; i++) groups[i] = groupOf.get(keyOf(i));
  return { groups, legend };
}

function bySize(set) {
  const logs = new Uint8Array(set.count);
  const areas = new Float64Array(64);
  let all = 0;
  for (let i = 0; i < set.count; i++) {
    logs[i] = Math.max(Math.floor(Math.log2(Math.max(set.size[i], 1))), 0);
    const area = set.size[i] * (set.died[i] - set.born[i]);
    areas[logs[i]] += area;
    all += area;
  }
  // The smallest, which take less than a hundredth of the picture, share a colour.
  let low = 0;
  for (let sum = areas[0]; low < 63 && sum <= all / 100; sum += areas[low]) low++;
  const high = Math.max(low, areas.findLastIndex((area) => area > 0));
  const step = Math.max(Math.ceil((high - low + 1) / RAMP.length), 1);
  const groups = logs.map((log) => Math.floor((Math.max(log, low) - low) / step));
  const smaller = logs.some((log) => log < low);
  const legend = [];
  for (let from = low; from <= high; from += step) {
    const colour = RAMP[Math.round((legend.length * (RAMP.length - 1)) / Math.max(Math.floor((high - low) / step), 1))];
    const name = from === low && smaller ? `under ${bytesText(2 ** (low + step))}` : `from ${bytesText(2 ** from)}`;
    legend.push({ name, colour, note: "" });
  }
  return { groups, legend };
}

/** Classes that have names: `neutral` is drawn in the colour of what nothing is known of. */
function byClass(set, values, names, neutral) {
  const sums = names.map(() => ({ count: 0, bytes: 0 }));
  for (let i = 0; i < set.count; i++) {
    const sum = sums[values[i]];
    if (sum) {
      sum.count += set.countOf(i);
      sum.bytes += set.bytes[i];
    }
  }
  const order = [4, 0, 2, 5, 3]; // of PALETTE: short-lived ones light
  const legend = names.map((name, index) => ({
    name,
    colour: index === neutral ? BEFORE : PALETTE[order[index % order.length]],
    note: sums[index].count ? `${plural(sums[index].count, "object")}, ${bytesText(sums[index].bytes)}` : "",
    hidden: !sums[index].count,
  }));
  return { groups: Uint8Array.from(values), legend };
}

function rgb(colour) {
  const value = parseInt(colour.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}
/** One pixel of an ImageData as a number: bytes red, green, blue, alpha from the lowest. */
function pixel(colour, shade = 1) {
  const [red, green, blue] = rgb(colour).map((part) => Math.round(part * shade));
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
