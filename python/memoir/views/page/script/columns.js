// SPDX-License-Identifier: Apache-2.0
// Reads what columns.py packs: base64, deflate, planes of bytes; plain values, changes, or numbers of a table.

function bytesOfBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function inflate(bytes, length) {
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
  const out = new Uint8Array(length);
  let at = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (at + value.length > length) throw new Error("a column is longer than it says");
    out.set(value, at);
    at += value.length;
  }
  if (at !== length) throw new Error("a column is shorter than it says");
  return out;
}

/** The values: a Uint32Array where they fit, else a Float64Array. */
async function readColumn(key, header) {
  const place = document.getElementById(key);
  const { coding, count, planes, table } = header;
  const raw = await inflate(bytesOfBase64(place.textContent), planes * count);
  const wide = planes > 4 || coding === "delta" || table.some((value) => value > 0xffffffff);
  if (coding === "table") {
    const values = wide ? new Float64Array(count) : new Uint32Array(count);
    if (planes === 1) for (let i = 0; i < count; i++) values[i] = table[raw[i]];
    else for (let i = 0; i < count; i++) values[i] = table[raw[i] + 256 * raw[count + i]];
    return values;
  }
  const coded = planes > 4 ? new Float64Array(count) : new Uint32Array(count);
  if (planes > 4) {
    for (let plane = planes - 1; plane >= 0; plane--) {
      const base = plane * count;
      for (let i = 0; i < count; i++) coded[i] = coded[i] * 256 + raw[base + i];
    }
  } else {
    for (let plane = 0; plane < planes; plane++) {
      const base = plane * count;
      const shift = 8 * plane;
      for (let i = 0; i < count; i++) coded[i] |= raw[base + i] << shift;
    }
  }
  if (coding === "plain") return coded;
  const values = new Float64Array(count);
  let now = 0;
  if (planes <= 4) {
    for (let i = 0; i < count; i++) {
      now += coded[i] & 1 ? -(coded[i] >>> 1) - 1 : coded[i] >>> 1;
      values[i] = now;
    }
    return values;
  }
  for (let i = 0; i < count; i++) {
    const code = coded[i];
    now += code % 2 === 1 ? -(code + 1) / 2 : code / 2;
    values[i] = now;
  }
  return values;
}

/** Reads each column once, on first use. */
class Columns {
  constructor(headers) {
    this.headers = headers;
    this.read = new Map();
  }
  get(key) {
    if (!this.read.has(key)) this.read.set(key, readColumn(key, this.headers[key]));
    return this.read.get(key);
  }
  /** Of {name: key}, {name: values}. */
  async getAll(keys) {
    const names = Object.keys(keys);
    const values = await Promise.all(names.map((name) => this.get(keys[name])));
    return Object.fromEntries(names.map((name, index) => [name, values[index]]));
  }
}
