// SPDX-License-Identifier: Apache-2.0
// Reads the page's data and makes its panels; follows light and dark; asks for a newer page when it is live.

const KINDS = { map: MapPanel, flame: FlamePanel, stacks: StacksPanel, lifetimes: LifetimesPanel, lines: LinesPanel };
const LIVE_EVERY = 1000; // ms

async function start() {
  const began = performance.now();
  const data = JSON.parse(document.getElementById("page-data").textContent);
  const columns = new Columns(data.columns);
  const sets = await Promise.all(data.sets.map((set) => ObjectSet.read(set, columns)));
  momentListeners.length = 0;
  const panels = [];
  for (const one of data.panels) {
    const section = document.getElementById(one.section);
    panels.push(await KINDS[one.kind].make(one, sets, columns, section));
    if (panels.length === 1) {
      await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0))); // the first picture is seen first
      performance.measure("memoir-first-picture", { start: began, end: performance.now() });
    }
  }
  const later = window.requestIdleCallback || ((task) => setTimeout(task, 200));
  for (const panel of panels) {
    if (panel.maps) for (const map of panel.maps) later(() => map.raster.makeLevels());
  }
  document.documentElement.dataset.ready = "yes";
  return { data, sets, panels };
}

function fail(error) {
  const place = document.getElementById("problem");
  place.hidden = false;
  place.textContent = `The pictures cannot be drawn here (${error.message}); the tables below hold the same numbers.`;
  document.documentElement.dataset.ready = "failed";
}

function repaint() {
  inks.clear();
  for (const panel of page.panels) {
    if (panel.repaint) panel.repaint();
    else panel.canvas?.now();
  }
}

/** Paper is white, whatever the screen is. */
function setPrinting(isPrinting) {
  document.documentElement.classList.toggle("printing", isPrinting);
  repaint();
}

let page = { panels: [] };

async function goLive() {
  let seen = null;
  for (;;) {
    await new Promise((done) => setTimeout(done, LIVE_EVERY));
    try {
      const answer = await fetch(location.href, { headers: seen ? { "If-None-Match": seen } : {}, cache: "no-store" });
      if (answer.status === 304) continue;
      if (!answer.ok) throw new Error(`the server said ${answer.status}`);
      const tag = answer.headers.get("ETag");
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (seen !== null || tag !== document.documentElement.dataset.tag) await takeOver(fresh);
      seen = tag;
      document.getElementById("problem").hidden = true;
    } catch (error) {
      const place = document.getElementById("problem");
      place.hidden = false;
      place.textContent = `Not live any more (${error.message}): this is what was seen last.`;
    }
  }
}

/** Puts a newer page's content in place of this one's; what was chosen stays. */
async function takeOver(fresh) {
  const chosen = page.panels.map((panel) => ({
    mode: panel.mode,
    measure: panel.measure,
    bottomUp: panel.bottomUp,
    whole: panel.maps?.every((map) => map.view.isWhole()),
  }));
  const scrolled = window.scrollY;
  for (const old of document.querySelectorAll('script[type="text/plain"], #page-data')) old.remove();
  for (const part of fresh.querySelectorAll('script[type="text/plain"], #page-data')) document.body.append(document.importNode(part, true));
  document.querySelector("header").replaceWith(document.importNode(fresh.querySelector("header"), true));
  document.querySelector("main").replaceWith(document.importNode(fresh.querySelector("main"), true));
  page = await start();
  page.panels.forEach((panel, index) => {
    const before = chosen[index];
    if (!before) return;
    if (before.mode && panel.setMode) panel.setMode(before.mode);
    if (before.measure) panel.set_({ measure: before.measure, bottomUp: before.bottomUp });
    for (const select of panel.section.querySelectorAll(".controls select")) {
      const value = [panel.mode, panel.measure].find((one) => [...select.options].some((option) => option.value === one));
      if (value) select.value = value;
    }
  });
  window.scrollTo(0, scrolled);
}

start().then((made) => {
  page = made;
  window.memoirPage = made; // for tests, and for whoever asks more than the page does
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  window.addEventListener("beforeprint", () => setPrinting(true));
  window.addEventListener("afterprint", () => setPrinting(false));
  if (made.data.live) goLive();
}, fail);
