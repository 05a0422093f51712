// SPDX-License-Identifier: Apache-2.0
// The flame graph of a program: exact sums of whole stacks, a tab for each question. Frames that are not the program's own
// can be left out, lines told apart, recursion made one frame.

const OWN_CODE = 0;

/** Stacks with what each has by each measure: what a flame graph reads of an ObjectSet, without objects. */
class StackSet {
  static async read(data, columns) {
    const set = new StackSet();
    set.own = await columns.getAll(data.columns);
    Object.assign(set, { siteFrame: set.own.siteFrame, siteParent: set.own.siteParent, functions: data.functions });
    Object.assign(set, { places: data.places, owners: data.owners, peakTick: 0 });
    return set;
  }

  /** What each frame is shown as: names by number, and of each frame its number. `lines`: a line is a frame of its own. */
  label(lines) {
    const numbers = new Map();
    this.frames = [];
    this.shown = Uint32Array.from(this.functions, (name, frame) => {
      const place = lines ? this.places[frame] : this.places[frame].replace(/:\d+$/, "");
      const text = place ? `${name} (${place})` : name;
      if (!numbers.has(text)) {
        numbers.set(text, this.frames.length);
        this.frames.push(text);
      }
      return numbers.get(text);
    });
  }
}

class StacksPanel extends FlamePanel {
  static latest = null;

  static async make(data, sets, columns, section) {
    const panel = new StacksPanel();
    const set = await StackSet.read(data, columns);
    Object.assign(panel, { data, set, section, measure: data.measures[0][0], bottomUp: false, query: "" });
    Object.assign(panel, { lines: true, ownOnly: false, merges: true });
    set.label(panel.lines);
    panel.build();
    StacksPanel.latest = panel; // what legends lead to
    document.querySelectorAll("a.follow").forEach((link) =>
      link.addEventListener("click", (event) => {
        event.preventDefault();
        panel.follow(link.dataset.measure, link.dataset.function);
      }),
    );
    return panel;
  }

  namedMeasures() {
    return this.data.measures.map(([key, name]) => [key, name]);
  }

  chooser() {
    const tabs = element("div", { class: "tabs", role: "tablist" });
    for (const [key, name] of this.measures) {
      tabs.append(element("button", { type: "button", role: "tab", "data-measure": key, text: name, onclick: () => this.set_({ measure: key }) }));
    }
    const check = (text, name, value) => {
      const box = element("input", { type: "checkbox", onchange: () => this.set_({ [name]: box.checked }) });
      box.checked = value;
      return element("label", { class: "check" }, box, element("span", { text }));
    };
    this.tabs = tabs;
    return [tabs, check("own code only", "ownOnly", this.ownOnly), check("lines", "lines", this.lines),
      check("merge recursion", "merges", this.merges)];
  }

  set_(change) {
    Object.assign(this, change);
    if ("lines" in change) this.set.label(this.lines);
    this.compute();
  }

  compute() {
    for (const tab of this.tabs.children) tab.setAttribute("aria-selected", String(tab.dataset.measure === this.measure));
    super.compute();
  }

  weights() {
    return Float64Array.from(this.set.own[this.measure]);
  }
  frameOf(site) {
    return this.set.shown[this.set.siteFrame[site]];
  }
  isHidden(site) {
    return this.ownOnly && this.set.owners[this.set.siteFrame[site]] !== OWN_CODE;
  }
  counts() {
    return this.data.measures.find(([key]) => key === this.measure)[2];
  }
  text(value) {
    return this.counts() ? plural(value, "object") : bytesText(value);
  }

  /** Shows one function by one measure: what an answer, or a legend, says of it. */
  follow(measure, name) {
    if (this.data.measures.some(([key]) => key === measure)) this.set_({ measure });
    this.query = name.toLowerCase();
    const search = this.section.querySelector("input[type=search]");
    if (search) search.value = name;
    this.section.scrollIntoView({ block: "start" });
    this.canvas.ask();
    this.sayFound();
  }
}
