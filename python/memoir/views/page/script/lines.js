// SPDX-License-Identifier: Apache-2.0
// Curves that belong to no map: what each policy held, what each program had resident.

// Without the light ones: a thin line needs more contrast than an area.
const LINES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const DASHES = [[], [6, 3], [2, 3], [9, 3, 2, 3]];

class LinesPanel {
  static async make(data, sets, columns, section) {
    const panel = new LinesPanel();
    Object.assign(panel, { data, section, hidden: new Set(), at: null });
    panel.build();
    return panel;
  }

  build() {
    const { data, section } = this;
    this.canvas = new Canvas(320, `${data.question} The tables have the numbers`, (context, width, height) =>
      this.draw(context, width, height),
    );
    this.tip = element("p", { class: "status", text: " " });
    const legend = element("div", { class: "legend" });
    data.series.forEach((one, index) => {
      const box = element("input", { type: "checkbox" });
      box.checked = true;
      box.addEventListener("change", () => {
        if (box.checked) this.hidden.delete(index);
        else this.hidden.add(index);
        this.canvas.ask();
      });
      legend.append(element("label", { class: "entry" }, box, swatch(this.colour(index)), element("span", { text: one.name })));
    });
    section.querySelector(".stage").replaceChildren(this.canvas.element, legend, this.tip);
    this.canvas.element.addEventListener("pointermove", (event) => {
      const box = this.canvas.element.getBoundingClientRect();
      this.hover(event.clientX - box.left, box.width);
    });
  }

  colour(index) {
    const style = this.data.series[index].style;
    return style === "area" ? ink("live") : LINES[index % LINES.length];
  }

  range() {
    let [x0, x1, most] = [Infinity, -Infinity, 1];
    this.data.series.forEach((one, index) => {
      if (!one.x.length || this.hidden.has(index)) return;
      x0 = Math.min(x0, one.x[0]);
      x1 = Math.max(x1, one.x[one.x.length - 1]);
      for (const value of one.y) most = Math.max(most, value);
    });
    for (const [, value] of this.data.levels) if (value < most * 3) most = Math.max(most, value);
    return x0 < x1 ? { x0, x1, most } : { x0: x0 === Infinity ? 0 : x0 - 1, x1: x0 === Infinity ? 1 : x0 + 1, most };
  }

  hover(px, width) {
    const { x0, x1 } = this.range();
    const x = x0 + ((px - 66) / Math.max(width - 74, 1)) * (x1 - x0);
    this.at = x;
    const parts = [];
    let when = null; // a point says the most of a stretch, up to the next
    this.data.series.forEach((one, index) => {
      if (this.hidden.has(index)) return;
      let k = -1;
      for (let low = 0, high = one.x.length - 1; low <= high; ) {
        const middle = (low + high) >> 1;
        if (one.x[middle] <= x) {
          k = middle;
          low = middle + 1;
        } else high = middle - 1;
      }
      if (k < 0 || x > one.x[one.x.length - 1]) return;
      const last = one.x[Math.min(k + 1, one.x.length - 1)] - 1;
      const { unit } = this.data;
      when ||= last > one.x[k] ? `most in ${unit}s ${countText(one.x[k])} to ${countText(last)}` : `${unit} ${countText(one.x[k])}`;
      parts.push(`${one.name}: ${bytesText(one.y[k])}`);
    });
    this.tip.textContent = parts.length ? `${when} · ${parts.join(" · ")}` : " ";
    announce(this.tip.textContent);
    this.canvas.ask();
  }

  draw(context, width, height) {
    const { data } = this;
    const { x0, x1, most } = this.range();
    const left = 66;
    const bottom = height - 32;
    const x = (value) => left + ((value - x0) / (x1 - x0)) * (width - left - 8);
    const y = (value) => bottom - (value / most) * (bottom - 12);
    context.clearRect(0, 0, width, height);
    context.textAlign = "right";
    for (const mark of ticksOf(0, most, 5, true)) {
      context.fillStyle = ink("grid");
      context.fillRect(left, Math.round(y(mark)), width - left - 8, 1);
      context.fillStyle = ink("muted");
      context.fillText(bytesText(mark), left - 6, y(mark) + 4);
    }
    context.textAlign = "center";
    for (const mark of ticksOf(x0, x1, Math.max(Math.floor(width / 120), 2), false)) {
      context.fillText(Number(mark.toPrecision(6)).toLocaleString("en"), x(mark), bottom + 16);
    }
    context.textAlign = "right";
    context.fillText(data.unit, width - 8, bottom + 30);
    data.series.forEach((one, index) => {
      if (this.hidden.has(index) || !one.x.length) return;
      context.beginPath();
      one.x.forEach((at, k) => {
        if (k === 0) context.moveTo(x(at), y(one.y[k]));
        else {
          if (one.style !== "line") context.lineTo(x(at), y(one.y[k - 1]));
          context.lineTo(x(at), y(one.y[k]));
        }
      });
      if (one.style === "area") {
        context.lineTo(x(one.x[one.x.length - 1]), bottom);
        context.lineTo(x(one.x[0]), bottom);
        context.globalAlpha = 0.45;
        context.fillStyle = this.colour(index);
        context.fill();
        context.globalAlpha = 1;
        return;
      }
      context.strokeStyle = this.colour(index);
      context.lineWidth = 1.6;
      context.setLineDash(DASHES[Math.floor(index / LINES.length) % DASHES.length]);
      context.stroke();
      context.setLineDash([]);
    });
    for (const [name, value] of data.levels) {
      if (value > most) continue;
      context.fillStyle = ink("limit");
      for (let dot = left; dot < width - 8; dot += 7) context.fillRect(dot, y(value), 4, 1);
      context.fillText(`${name} ${bytesText(value)}`, width - 10, y(value) - 4);
    }
    context.font = "13px system-ui, sans-serif";
    for (const [at, text] of data.marks) {
      context.fillStyle = ink("bad");
      context.textAlign = "center";
      context.fillText("×", x(at), 14);
      context.fillRect(x(at), 16, 1, bottom - 16);
      context.textAlign = x(at) > width / 2 ? "right" : "left";
      context.fillText(` ${text} `, x(at), 26);
    }
    if (this.at !== null && this.at >= x0 && this.at <= x1) {
      context.fillStyle = ink("ink");
      context.fillRect(x(this.at), 12, 1, bottom - 12);
    }
  }

  repaint() {
    this.canvas.now();
  }
}
