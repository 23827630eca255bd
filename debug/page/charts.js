"use strict";

// A Chart draws one or more series of a value a second. It is drawn by uPlot. The pointer and the arrow keys show one
// second in all charts of the page; dragging zooms all of them.
class Chart {
  // All charts of the page.
  static all = [];
  // The times that are shown, in seconds, or null for the latest.
  static zoom = null;
  static onzoom = () => {};

  static zoomTo(range) {
    Chart.zoom = range;
    for (const c of Chart.all) c.draw(c.samples, c.range);
    Chart.onzoom();
  }

  constructor(parent, { title, explain, series, format, empty = "", steps = format === count ? whole : undefined }) {
    Object.assign(this, { title, series, format, empty, steps, samples: [], range: 300, now: null, then: null, cursor: null, data: [[], ...series.map(() => [])] });
    const figure = make("figure", {}, parent);
    const caption = make("figcaption", {}, figure);
    make("b", { text: title }, caption);
    this.legends = series.map((s, i) => {
      const legend = make("span", { class: "legend series" + i }, caption);
      make("i", { "aria-hidden": "true" }, legend);
      return make("span", {}, legend);
    });
    this.plot = make("div", { class: "plot", role: "img", tabindex: "0" }, figure);
    make("p", { class: "explain", text: explain }, figure);
    this.note = make("p", { class: "empty", text: empty, hidden: "" }, this.plot);
    const hue = (i) => css(["--accent", "--second", "--third", "--fourth"][i % 4]);
    const axis = { stroke: () => css("--muted"), grid: { stroke: () => css("--line"), width: 1 }, ticks: { stroke: () => css("--line"), width: 1, size: 4 }, font: "11px system-ui, sans-serif" };
    this.u = new uPlot({
      width: 400, height: 180, legend: { show: false }, padding: [8, 8, 0, 0],
      cursor: {
        y: false, drag: { x: true, y: false, setScale: false },
        sync: { key: "page", setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
        bind: { dblclick: () => () => { Chart.zoomTo(null); return null; } },
      },
      scales: { x: { time: true }, y: { auto: false } },
      axes: [
        { ...axis, space: 70, size: 28, values: (u, ticks) => ticks.map((t) => new Date(t * 1000).toTimeString().slice(0, 8)) },
        { ...axis, space: 32, size: 62, values: (u, ticks) => ticks.map((v) => format(v)), ...(steps && { incrs: steps }) },
      ],
      series: [{}, ...series.map((s, i) => ({
        stroke: () => hue(i), width: 1.6, points: { show: false }, fill: i || series.length > 1 ? undefined : () => css("--fill"),
      }))],
      hooks: {
        setCursor: [(u) => this.tell(u.cursor.idx)],
        setSelect: [(u) => {
          if (u.select.width > 4) Chart.zoomTo([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]);
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        }],
      },
    }, this.data, this.plot);
    new ResizeObserver(() => {
      const width = this.plot.clientWidth;
      if (width > 0 && width !== this.u.width) this.u.setSize({ width, height: 180 });
    }).observe(this.plot);
    this.plot.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: 1, ArrowRight: -1 }[e.key];
      if (!step || !this.data[0].length) return;
      e.preventDefault();
      this.cursor = Math.min(Math.max((this.cursor ?? 0) + step, 0), this.data[0].length - 1);
      this.point();
    });
    this.plot.addEventListener("blur", () => {
      this.cursor = null;
      for (const c of Chart.all) c.u.setCursor({ left: -10, top: -10 }, true, false);
    });
    Chart.all.push(this);
  }

  // point shows the second that the arrow keys have chosen, in all charts of these samples.
  point() {
    const at = this.data[0][this.data[0].length - 1 - this.cursor];
    for (const c of Chart.all) {
      if (c.samples === this.samples) c.u.setCursor({ left: c.u.valToPos(at, "x"), top: 10 }, true, false);
    }
  }

  // now and then are the counts of the present and of some seconds ago, from which the tiles are made too.
  draw(samples, range, now = this.now, then = this.then) {
    Object.assign(this, { samples, range, now, then });
    const end = samples.length ? samples[samples.length - 1].at / 1000 : 0;
    const xs = [], ys = this.series.map(() => []);
    for (let i = 1; i < samples.length; i++) { // a value may need the sample before
      xs.push(samples[i].at / 1000);
      this.series.forEach((s, j) => ys[j].push(s.value(samples[i], samples[i - 1])));
    }
    this.data = [xs, ...ys];
    // The window fits what was observed: it does not begin before the first sample.
    const [min, max] = Chart.zoom || [Math.max(end - range, xs.length ? xs[0] : end - 1), Math.max(end, (xs[0] || 0) + 1)];
    let top = 0;
    for (const list of ys) list.forEach((v, i) => { if (xs[i] >= min && xs[i] <= max && v > top) top = v; });
    this.u.batch(() => {
      this.u.setData(this.data, false);
      this.u.setScale("x", { min, max });
      this.u.setScale("y", { min: 0, max: this.steps?.find((s) => s >= top) ?? nice(top) });
    });
    this.note.hidden = !this.empty || ys.some((list) => list.some((v) => v !== null));
    if (this.cursor !== null) this.point();
    this.tell(this.u.cursor.idx);
  }

  // tell shows the values of one second, or without one those that the tiles show.
  tell(idx) {
    const latest = (idx === null || idx === undefined) && this.now && this.then;
    const xs = this.data[0];
    const i = idx ?? xs.length - 1;
    const values = this.series.map((s, j) => {
      const v = latest ? s.value(this.now, this.then) : this.data[j + 1][i];
      const words = (s.name ? s.name + " " : "") + (v === null || v === undefined ? "–" : this.format(v));
      text(this.legends[j], words);
      return words;
    });
    const ago = xs.length && idx !== null && idx !== undefined ? Math.round(xs[xs.length - 1] - xs[i]) : 0;
    this.plot.setAttribute("aria-label", `${this.title}, ${ago ? ago + " seconds ago" : "now"}: ${values.join(", ")}`);
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => Chart.all.forEach((c) => c.u.redraw()));

// css returns a colour of the page.
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

// whole are the steps of an axis of things that are counted: there is no half of one.
const whole = Array.from({ length: 15 }, (_, i) => 10 ** i).flatMap((n) => [n, 2 * n, 5 * n]);

// nice is a round number that is not below v.
function nice(v) {
  if (v <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 5, 10].find((f) => f * unit >= v * 0.999999) * unit;
}

// perSecond makes a rate of a count. A count that was reset begins at 0.
function perSecond(name) {
  return (now, before) => (now.at > before.at ? Math.max((now[name] || 0) - (before[name] || 0), 0) / ((now.at - before.at) / 1000) : null);
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
