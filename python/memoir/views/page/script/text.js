// SPDX-License-Identifier: Apache-2.0
// Quantities as people read them, as memoir's other views write them, and elements whose text is never markup.

const three = (value) => {
  const size = Math.abs(value);
  return size < 9.995 ? value.toFixed(2) : size < 99.95 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
};

function bytesText(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (Math.abs(count) >= 1000 && at < 4) {
    count /= 1024;
    at++;
  }
  return at === 0 ? `${Math.round(count)} B` : `${three(count)} ${units[at]}`;
}

function durationText(nanoseconds) {
  const units = ["ns", "us", "ms", "s"];
  let at = 0;
  while (Math.abs(nanoseconds) >= 1000 && at < 3) {
    nanoseconds /= 1000;
    at++;
  }
  return at === 0 ? `${Math.round(nanoseconds)} ns` : `${three(nanoseconds)} ${units[at]}`;
}

const countText = (count) => Math.round(count).toLocaleString("en");
const plural = (count, noun) => `${countText(count)} ${noun}${count === 1 ? "" : "s"}`;
/** Of "/a/b/c.py:12 f" what is read first. */
const shortFrame = (name) => name.replace(/(?:[^\s/\\(]*[/\\])+([^\s/\\]+)/, "$1");
const percentText = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "");

/** An element. Attributes by name; `on*` are listeners; children are elements or text. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "text") made.textContent = value;
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

/** A labelled <select>; calls `choose` with the value. */
function choice(label, options, value, choose) {
  const select = element("select", { onchange: () => choose(select.value) });
  for (const [key, text] of options) select.append(element("option", { value: key, text }));
  select.value = value;
  return element("label", { class: "choice" }, element("span", { text: label }), select);
}

/** A table of text: heads, rows; the first `left` columns are words. A row may carry `pick`. */
function tableOf(caption, heads, rows, left = 1) {
  const table = element("table", {}, element("caption", { text: caption }));
  const head = element("tr");
  heads.forEach((text, index) => head.append(element("th", { scope: "col", class: index < left ? "l" : null, text })));
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr", row.pick ? { class: "pick", tabindex: "0" } : {});
    row.cells.forEach((text, index) => line.append(element("td", { class: index < left ? "l" : null, text })));
    if (row.swatch) line.firstChild.prepend(swatch(row.swatch));
    if (row.pick) {
      line.addEventListener("click", row.pick);
      line.addEventListener("keydown", (event) => {
        if (event.key === "Enter") row.pick();
      });
    }
    body.append(line);
  }
  table.append(element("thead", {}, head), body);
  return element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption }, table);
}

function swatch(colour) {
  const made = element("span", { class: "swatch", "aria-hidden": "true" });
  made.style.backgroundColor = colour;
  return made;
}

let announced = 0;
/** For screen readers: the latest of what is hovered, not all of it. */
function announce(text) {
  clearTimeout(announced);
  announced = setTimeout(() => {
    const place = document.getElementById("readout");
    if (place.textContent !== text) place.textContent = text;
  }, 250);
}

/** Round numbers from low to high, about `count` of them; `binary`: multiples of powers of two. */
function ticksOf(low, high, count, binary) {
  const span = high - low;
  if (!(span > 0)) return [low];
  let step;
  if (binary) {
    step = 2 ** Math.max(Math.ceil(Math.log2(span / count)), 0);
  } else {
    const power = 10 ** Math.floor(Math.log10(span / count));
    const rest = span / count / power;
    step = power * (rest <= 1 ? 1 : rest <= 2 ? 2 : rest <= 5 ? 5 : 10);
  }
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9 && found.length < 64; at += step) found.push(at);
  return found;
}

/** A colour of the style sheet, light or dark as the page is. */
function ink(name) {
  if (!inks.has(name)) inks.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return inks.get(name);
}
const isPrinting = () => document.documentElement.classList.contains("printing");
const inks = new Map(); // forgotten when the page turns light or dark
