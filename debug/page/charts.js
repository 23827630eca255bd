"use strict";

// A Chart draws one or two series of a value a second. Arrow keys and the pointer show a single one.
class Chart {
  static width = 600;
  static height = 110;

  constructor(parent, title, series, format) {
    this.title = title;
    this.series = series;
    this.format = format;
    this.samples = [];
    this.range = 300;
    this.cursor = null; // seconds before the latest sample
    const figure = make("figure", {}, parent);
    const caption = make("figcaption", {}, figure);
    make("b", { text: title }, caption);
    this.legends = series.map((s, i) => {
      const legend = make("span", { class: i ? "legend second" : "legend" }, caption);
      make("i", { "aria-hidden": "true" }, legend);
      return make("span", {}, legend);
    });
    const plot = make("div", { class: "plot" }, figure);
    this.svg = svg("svg", {
      viewBox: `0 0 ${Chart.width} ${Chart.height}`, preserveAspectRatio: "none", role: "img", tabindex: "0",
    }, plot);
    for (const y of [1, Chart.height / 2, Chart.height - 1]) {
      svg("line", { class: "grid", x1: 0, x2: Chart.width, y1: y, y2: y }, this.svg);
    }
    this.area = svg("path", { class: "area" }, this.svg);
    this.lines = series.map((s, i) => svg("path", { class: "line" + i }, this.svg));
    this.mark = svg("line", { class: "cursor", y1: 0, y2: Chart.height, visibility: "hidden" }, this.svg);
    this.top = make("span", { class: "top" }, plot);
    this.when = make("span", { class: "when" }, plot);
    this.svg.addEventListener("pointermove", (e) => {
      const box = this.svg.getBoundingClientRect();
      this.point(Math.round((1 - (e.clientX - box.left) / box.width) * this.range));
    });
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("blur", () => this.point(null));
    this.svg.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: 1, ArrowRight: -1 }[e.key];
      if (!step) return;
      e.preventDefault();
      this.point(Math.min(Math.max((this.cursor ?? 0) + step, 0), this.range));
    });
  }

  point(seconds) {
    this.cursor = seconds;
    this.draw(this.samples, this.range);
  }

  draw(samples, range) {
    this.samples = samples;
    this.range = range;
    const end = samples.length ? samples[samples.length - 1].at : 0;
    const values = this.series.map((s) => points(samples, s.value, end - range * 1000));
    const shown = values.flat().map((p) => p.v);
    const top = nice(Math.max(...shown, 0));
    const x = (at) => Chart.width * (1 - (end - at) / (range * 1000));
    const y = (v) => Chart.height - 1 - (Chart.height - 2) * (v / top);
    values.forEach((list, i) => {
      const path = list.map((p, j) => (j ? "L" : "M") + x(p.at).toFixed(1) + " " + y(p.v).toFixed(1)).join("");
      this.lines[i].setAttribute("d", path);
      if (i === 0) {
        const foot = Chart.height - 1;
        this.area.setAttribute("d", list.length
          ? path + `L${x(list[list.length - 1].at).toFixed(1)} ${foot}L${x(list[0].at).toFixed(1)} ${foot}Z` : "");
      }
    });
    text(this.top, this.format(top));
    let at = end;
    if (this.cursor !== null && end) {
      at = end - this.cursor * 1000;
      const to = x(at).toFixed(1);
      this.mark.setAttribute("x1", to);
      this.mark.setAttribute("x2", to);
    }
    this.mark.setAttribute("visibility", this.cursor === null ? "hidden" : "visible");
    text(this.when, this.cursor === null ? `${range / 60} min ago` : `${this.cursor} s ago`);
    const told = this.series.map((s, i) => {
      const v = nearest(values[i], at);
      const words = (s.name ? s.name + " " : "") + (v === null ? "–" : this.format(v));
      text(this.legends[i], words);
      return words;
    });
    this.svg.setAttribute("aria-label", `${this.title}, ${this.cursor === null ? "now" : this.cursor + " seconds ago"}: ${told.join(", ")}; at most ${this.format(Math.max(...shown, 0))} in the last ${range / 60} minutes`);
  }
}

// points are a series' values after a time; a value may need the sample before.
function points(samples, value, after) {
  const list = [];
  for (let i = 1; i < samples.length; i++) {
    if (samples[i].at < after) continue;
    list.push({ at: samples[i].at, v: value(samples[i], samples[i - 1]) });
  }
  return list;
}

function nearest(list, at) {
  let best = null;
  for (const p of list) {
    if (best === null || Math.abs(p.at - at) < Math.abs(best.at - at)) best = p;
  }
  return best && best.v;
}

// nice is a round number that is not below v.
function nice(v) {
  if (v <= 1) return 1;
  const unit = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 5, 10].find((f) => f * unit >= v) * unit;
}

// perSecond makes a rate of a count.
function perSecond(name) {
  return (now, before) => (now[name] - before[name]) / ((now.at - before.at) / 1000);
}

function text(element, s) {
  if (element.textContent !== s) element.textContent = s;
}

function fill(element, attributes) {
  for (const [name, v] of Object.entries(attributes)) {
    if (name === "text") text(element, v);
    else element.setAttribute(name, v);
  }
  return element;
}

function make(tag, attributes, parent) {
  const element = fill(document.createElement(tag), attributes);
  if (parent) parent.append(element);
  return element;
}

function svg(tag, attributes, parent) {
  const element = fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes);
  parent.append(element);
  return element;
}
