// SPDX-License-Identifier: Apache-2.0
// What colour an object has: a mode gives each object a group, a group has a name and a colour. The colours were chosen
// so that any two stay apart for readers who see no red, no green or no blue (tests/views/test_palette.py).

const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#fbb6c8"];
const OTHER = "#606872";
const BEFORE = "#a89f91";
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
  if (mode === "lifetime") return byClass(set, set.columns.lifetime, set.lifetimes, 4, set.exact["group lifetime"]);
  if (mode === "predicted") return byClass(set, set.columns.predicted, set.predictions, -1, set.exact["group predicted"]);
  if (set.together && set.together.length > 1) return rankedByName(set, mode);
  return ranked(set, mode, keysOf(set, mode));
}

/** A number for each object, and the name of each number; in modes of sites also the number of each site. */
function keysOf(set, mode) {
  if (mode === "site") return { keys: set.site, nameOf: (key) => set.siteText(key), keyOfSite: (site) => site };
  if (mode === "operator" || mode === "root") {
    const frames = Uint32Array.from(set.siteFrame, (frame, site) => (mode === "root" ? set.rootOf(site) : frame));
    const keys = new Uint32Array(set.count);
    for (let i = 0; i < set.count; i++) keys[i] = frames[set.site[i]];
    return { keys, nameOf: (key) => set.frames[key], keyOfSite: (site) => frames[site] };
  }
  const keys = set.columns[mode];
  if (mode === "pass") return { keys, nameOf: (key) => (key ? set.passes[key - 1][0] : "outside passes") };
  return { keys, nameOf: (key) => `${mode} ${key}` };
}

/** By key, calls add(key, bytes at the peak, bytes in all): object by object, or what exact.py summed before. */
function addUp(set, mode, keys, keyOfSite, add) {
  const { sums } = set.exact;
  const group = set.exact[`group ${mode}`];
  if (group) group.key.forEach((key, k) => add(key, group.peak[k], group.bytes[k]));
  else if (sums && keyOfSite) sums.allocated.forEach((all, site) => all && add(keyOfSite(site), sums.peak[site], all));
  else {
    const { born, died, bytes, peakTick } = set;
    for (let i = 0; i < set.count; i++) add(keys[i], born[i] <= peakTick && died[i] > peakTick ? bytes[i] : 0, bytes[i]);
  }
}

/** Colours go to the keys with the most bytes at the peak, then with the most in all. */
function ranked(set, mode, { keys: given, nameOf, keyOfSite }) {
  const { keys, count, keyOf, numberOf } = numbered(set, mode, given, keyOfSite);
  const peak = new Float64Array(count);
  const all = new Float64Array(count);
  addUp(set, mode, given, keyOfSite, (key, then, bytes) => {
    all[numberOf(key)] += bytes;
    peak[numberOf(key)] += then;
  });
  const order = [];
  for (let key = 0; key < count; key++) if (all[key] > 0) order.push(key);
  order.sort((a, b) => peak[b] - peak[a] || all[b] - all[a] || a - b);
  const shown = Math.min(order.length, PALETTE.length);
  const groupOf = new Uint8Array(count).fill(PALETTE.length);
  order.slice(0, shown).forEach((key, index) => (groupOf[key] = index));
  const legend = order.slice(0, shown).map((key, index) => ({
    key,
    name: nameOf(keyOf(key)),
    colour: PALETTE[index],
    note: `${bytesText(peak[key])} at the peak`,
  }));
  if (order.length > shown) {
    const rest = order.slice(shown).reduce((total, key) => total + peak[key], 0);
    const note = `${bytesText(rest)} at the peak`;
    legend.push({ name: plural(order.length - shown, "other"), colour: OTHER, note });
  }
  const groups = new Uint8Array(set.count);
  for (let i = 0; i < set.count; i++) groups[i] = groupOf[keys[i]];
  return { groups, legend };
}

/** Of sets that are compared: colours go to names, and what has one name has one colour in all of them. */
function rankedByName(set, mode) {
  const sums = new Map();
  const named = set.together.map((one, index) => {
    const { keys, nameOf, keyOfSite } = keysOf(one, mode);
    const names = new Map();
    addUp(one, mode, keys, keyOfSite, (key, then, bytes) => {
      let sum = names.get(key);
      if (!sum) {
        const name = nameOf(key);
        sum = sums.get(name) || { name, peaks: new Float64Array(set.together.length), peak: 0, all: 0, group: PALETTE.length };
        sums.set(name, sum);
        names.set(key, sum);
      }
      sum.all += bytes;
      sum.peak += then;
      sum.peaks[index] += then;
    });
    return { keys, names };
  });
  const order = [...sums.values()].sort((a, b) => b.peak - a.peak || b.all - a.all || (a.name < b.name ? -1 : 1));
  const note = (peaks) => `${[...peaks].map(bytesText).join(" → ")} at the peak`;
  const legend = order.slice(0, PALETTE.length).map((sum, index) => {
    sum.group = index;
    return { name: sum.name, colour: PALETTE[index], note: note(sum.peaks) };
  });
  const rest = order.slice(PALETTE.length);
  if (rest.length) {
    const peaks = set.together.map((_, index) => rest.reduce((total, sum) => total + sum.peaks[index], 0));
    legend.push({ name: plural(rest.length, "other"), colour: OTHER, note: note(peaks) });
  }
  const { keys, names } = named[set.together.indexOf(set)];
  return { groups: Uint8Array.from(keys, (key) => names.get(key).group), legend };
}

/** Small numbers for keys, since some are handles of streams: {keys: of each object, count, keyOf, numberOf}. */
function numbered(set, mode, given, keyOfSite) {
  let most = 0;
  addUp(set, mode, given, keyOfSite, (key) => key > most && (most = key));
  const same = (key) => key;
  if (most < 1 << 22) return { keys: given, count: most + 1, keyOf: same, numberOf: same };
  const found = new Map();
  const numberOf = (key) => {
    if (!found.has(key)) found.set(key, found.size);
    return found.get(key);
  };
  const keys = Uint32Array.from(given, numberOf);
  addUp(set, mode, given, keyOfSite, numberOf); // those of merged objects, too
  const back = [...found.keys()];
  return { keys, count: back.length, keyOf: (number) => back[number], numberOf };
}

function bySize(set) {
  const sets = set.together || [set];
  const areas = new Float64Array(64);
  let all = 0;
  const log = (size) => Math.max(Math.floor(Math.log2(Math.max(size, 1))), 0);
  let logs = null;
  for (const one of sets) {
    const found = Uint8Array.from(one.size, log);
    for (let i = 0; i < one.count; i++) {
      const area = one.size[i] * (one.died[i] - one.born[i]);
      areas[found[i]] += area;
      all += area;
    }
    if (one === set) logs = found;
  }
  // The smallest, which take less than a hundredth of the picture, share a colour.
  let low = 0;
  for (let sum = areas[0]; low < 63 && sum <= all / 100; sum += areas[low]) low++;
  const high = Math.max(low, areas.findLastIndex((area) => area > 0));
  const step = Math.max(Math.ceil((high - low + 1) / RAMP.length), 1);
  const groups = logs.map((one) => Math.floor((Math.max(one, low) - low) / step));
  const smaller = areas.some((area, one) => area > 0 && one < low);
  const legend = [];
  for (let from = low; from <= high; from += step) {
    const colour = RAMP[Math.round((legend.length * (RAMP.length - 1)) / Math.max(Math.floor((high - low) / step), 1))];
    const name = from === low && smaller ? `under ${bytesText(2 ** (low + step))}` : `from ${bytesText(2 ** from)}`;
    legend.push({ name, colour, note: "" });
  }
  return { groups, legend };
}

/** Classes that have names: `neutral` is drawn in the colour of what nothing is known of. */
function byClass(set, values, names, neutral, group) {
  const sums = names.map(() => ({ count: 0, bytes: 0 }));
  const add = (key, count, bytes) => {
    const sum = sums[key];
    if (!sum) return;
    sum.count += count;
    sum.bytes += bytes;
  };
  if (group) group.key.forEach((key, k) => add(key, group.count[k], group.bytes[k]));
  else for (let i = 0; i < set.count; i++) add(values[i], set.countOf(i), set.bytes[i]);
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
