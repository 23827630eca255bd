"use strict";

const $ = (id) => document.getElementById(id);
const every = 1000; // milliseconds between two looks
const keptEvents = 500;

const view = {
  tab: "server", server: "", kind: "", served: [], servedSince: null, bounds: [], servers: [], listed: false,
  port: "", q: "", state: "", sort: "socket", order: "asc", offset: 0, limit: 50, range: 300,
  paused: false, matched: 0, process: [], processSince: null, samples: [], observed: null, trace: null, seen: new Map(), rows: new Map(), first: true,
};

const columns = [
  { name: "socket", title: "Socket", number: true },
  { name: "key", title: "Key" },
  { name: "local", title: "Local" },
  { name: "remote", title: "Remote" },
  { name: "filter", title: "Filter" },
  { name: "trigger", title: "Trigger" },
  { name: "state", title: "State" },
  { name: "notifications", title: "Notifications", number: true },
  { title: "Per second", number: true },
  { name: "last", title: "Last" },
  { name: "since", title: "Age", number: true },
];

const charts = []; // of the port
const cards = {};

// ---- words ----

const grouped = new Intl.NumberFormat("en");
function count(n) {
  if (n >= 1e7) return (n / 1e6).toFixed(1) + " M";
  return grouped.format(Math.round(n));
}
function rate(n) {
  return n > 0 && n < 10 ? n.toFixed(1) : count(n);
}
function span(ms) {
  const s = Math.max(ms, 0) / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 120) return Math.round(s) + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  if (s < 172800) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " d";
}
function several(n, one, many) {
  return `${count(n)} ${n === 1 ? one : many}`;
}
const clock = (at) => at.toTimeString().slice(0, 8) + "." + String(at.getMilliseconds()).padStart(3, "0").slice(0, 2);

// ---- asking ----

async function ask(path, parameters) {
  const answer = await fetch(path + "?" + new URLSearchParams(parameters), { cache: "no-store" });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error || answer.statusText);
  return body;
}

function wanted() {
  const { port, q, state, sort, order, offset, limit } = view;
  return { port, q, state, sort, order, offset, limit };
}

let asking = 0;
async function look() {
  const turn = ++asking;
  try {
    if (!view.listed || (view.tab === "port" && !view.port)) await list();
    if (view.tab === "server") {
      await lookAtServer(turn);
      return;
    }
    if (!view.port) {
      health("the server has no port before it serves", "");
      return;
    }
    const query = wanted();
    const last = view.samples.length ? view.samples[view.samples.length - 1].number : "";
    const { status, registrations, history, process } = await ask("view", { ...query, after: last, process: lastOfProcess() });
    if (turn !== asking) return; // something else was asked for since
    if (view.observed !== status.observed) {
      // Another observation, with numbers of its own. What was asked for went by those of the one before.
      const known = view.observed !== null;
      view.observed = status.observed;
      view.samples = [];
      if (known) return loop();
    }
    for (const s of history.samples) {
      s.at = Date.parse(s.time);
      view.samples.push(s);
    }
    view.samples = view.samples.slice(-600);
    const now = { ...status.counts, at: Date.parse(status.time) };
    const then = view.samples[Math.max(view.samples.length - 6, 0)]; // rates are those of the last seconds
    showStatus(status, (name) => (then && now.at > then.at ? perSecond(name)(now, then) : 0));
    showRegistrations(registrations, Date.parse(status.time));
    for (const c of charts) c.draw(view.samples, view.range, now, then);
    showProcess(process);
    health(status.closed ? "the port is closed" : "live", status.closed ? "" : "live");
  } catch (e) {
    if (turn === asking) health(e instanceof TypeError ? "no answer, trying again" : e.message, "failing");
  }
}

// list asks which servers and ports there are.
async function list() {
  const { servers, bounds, remote } = await ask("servers", {});
  const { ports } = await ask("ports", {});
  text($("guard"), remote
    ? "Other machines may look too: keep this behind what asks for a password, or on a listener that only those reach who should."
    : "Only this machine may look. Others may with debug.AllowRemote, behind what asks for a password.");
  Object.assign(view, { servers, bounds, listed: true });
  const kept = new URLSearchParams(location.hash.slice(1));
  const choose = (id, names, wanted) => {
    $(id).replaceChildren();
    for (const name of names) make("option", { value: name, text: name }, $(id));
    return ($(id).value = names.includes(wanted) ? wanted : names[0] || "");
  };
  view.server = choose("server", servers.map((s) => s.name), view.server || kept.get("server"));
  view.port = choose("port", ports.map((p) => p.name), view.port || kept.get("port"));
  if (!servers.length && !ports.length) throw new Error("no server and no port is mounted");
  showTab(servers.length ? view.tab : "port");
}

// showTab shows the server, or the inside of a port.
function showTab(tab) {
  view.tab = tab;
  for (const name of ["server", "port"]) {
    $("tab-" + name).setAttribute("aria-selected", String(name === tab));
    $("tab-" + name).tabIndex = name === tab ? 0 : -1;
    $("panel-" + name).hidden = name !== tab;
    for (const e of document.querySelectorAll(".of-" + name)) e.hidden = name !== tab;
  }
  $("tabs").hidden = !view.servers.length;
  if (!view.servers.length) $("server-field").hidden = true;
}

function chooseTab(tab) {
  if (tab === "port") {
    const own = view.servers.find((s) => s.name === view.server)?.ports || [];
    if (own.length && !own.includes(view.port)) choosePort(own[0]);
  }
  Chart.zoomTo(null);
  showTab(tab);
  again({});
}

function choosePort(name) {
  stopTrace();
  $("events").replaceChildren();
  $("port").value = name;
  Object.assign(view, { port: name, samples: [], observed: null, offset: 0 });
}

let timer = 0;
async function loop() {
  clearTimeout(timer);
  if (!view.paused && !document.hidden) await look();
  clearTimeout(timer);
  timer = setTimeout(loop, every);
}

function health(words, how) {
  $("health").className = how;
  text($("health-text"), words);
}

// again shows another part of the registrations at once.
function again(change) {
  Object.assign(view, change);
  remember();
  if (view.paused) look();
  else loop();
}

function remember() {
  const kept = new URLSearchParams();
  for (const name of ["tab", "server", "port", "q", "state", "sort", "order", "limit", "range"]) {
    if (view[name] !== "") kept.set(name, view[name]);
  }
  history.replaceState(null, "", "#" + kept);
  const query = new URLSearchParams(wanted());
  for (const name of ["view", "registrations"]) $("json-" + name).href = name + "?" + query;
  $("json-server").href = "server?" + new URLSearchParams({ server: view.server });
  for (const name of ["status", "history", "trace"]) {
    $("json-" + name).href = name + "?" + new URLSearchParams({ port: view.port });
  }
}

function recall() {
  const kept = new URLSearchParams(location.hash.slice(1));
  for (const name of ["q", "state"]) view[name] = kept.get(name) || "";
  if (kept.get("tab") === "port") view.tab = "port";
  if (columns.some((c) => c.name && c.name === kept.get("sort"))) view.sort = kept.get("sort");
  if (kept.get("order") === "desc") view.order = "desc";
  for (const name of ["limit", "range"]) {
    const select = $(name);
    if ([...select.options].some((o) => o.value === kept.get(name))) {
      view[name] = Number(kept.get(name));
      select.value = kept.get(name);
    }
  }
  $("search").value = view.q;
}

// ---- showing ----

function card(parent, name, title, explain) {
  const box = make("div", {}, parent);
  make("dt", { text: title }, box);
  return { value: make("dd", { id: "card-" + name }, box), note: make("dd", { class: "note" }, box), explain: make("dd", { class: "explain", text: explain }, box) };
}

function set(name, value, note) {
  text(cards[name].value, value);
  text(cards[name].note, note);
}

function showStatus(s, r) {
  const { counts: c } = s;
  text($("backend"), s.backend + (s.kernel_edges ? ", edges in the kernel" : ""));
  text($("observed"), s.observed ? "observed for " + span(Date.parse(s.time) - Date.parse(s.observed)) : "");
  set("registrations", count(c.registrations), several(c.removals, "removal", "removals"));
  set("notifications", rate(r("notifications")), count(c.notifications) + " in all");
  const enables = r("rearms") + r("fast_enables");
  set("saved", enables ? (100 * r("fast_enables") / enables).toFixed(1) + " %" : "–", rate(enables) + " enables/s");
  set("wakeups", rate(r("wakeups")), count(c.wakeups) + " in all");
  set("queued", count(c.queued), rate(r("posts")) + " posts/s");
  set("waiting", count(c.waiting), several(s.spread.reduce((n, p) => n + p.inside, 0), "call inside", "calls inside"));
  set("accepted", rate(r("accepted")), count(c.accepted) + " in all");
  set("completed", rate(r("completions")), count(c.completions) + " in all");
  set("stale", rate(r("stale")), count(c.stale) + " in all");
  showSpread(s);
}

function showSpread(s) {
  const parts = s.spread.map((p) => ({ ...p, work: p.notifications + p.removals + p.posts_dequeued }));
  const all = parts.reduce((n, p) => n + p.work, 0);
  text($("waiters"), s.counts.waiting
    ? `${several(s.counts.waiting, "call is", "calls are")} asleep: one watches the kernel, ${s.counts.waiting - 1} behind it.`
    : "No call is asleep.");
  text($("places"), ` Of the ${parts.length} places that calls are counted in, ${parts.filter((p) => p.work || p.inside).length} are in use.`);
  const list = $("spread");
  while (list.children.length < parts.length) {
    const item = make("li", {}, list);
    make("span", { class: "muted", text: String(list.children.length) }, item);
    make("span", {}, make("span", { class: "track", "aria-hidden": "true" }, item));
    make("span", {}, item);
  }
  parts.forEach((p, i) => {
    const item = list.children[i];
    const share = all ? (100 * p.work) / all : 0;
    item.hidden = !p.work && !p.inside;
    item.children[1].firstChild.style.width = share + "%";
    text(item.children[2], `${share.toFixed(1)} % · ${several(p.inside, "call", "calls")} inside`);
  });
}

function showColumns() {
  const row = $("columns");
  for (const c of columns) {
    const th = make("th", { scope: "col" }, row);
    if (c.number) th.className = "number";
    const button = make("button", { type: "button", text: c.title }, th);
    if (!c.name) {
      button.disabled = true;
      continue;
    }
    button.id = "sort-" + c.name;
    button.addEventListener("click", () => {
      const turned = view.sort === c.name && view.order === "asc";
      const down = ["notifications", "last"].includes(c.name) && view.sort !== c.name;
      again({ sort: c.name, order: turned || down ? "desc" : "asc", offset: 0 });
      markSort();
    });
  }
  markSort();
}

function markSort() {
  [...$("columns").children].forEach((th, i) => {
    if (columns[i].name !== view.sort) th.removeAttribute("aria-sort");
    else th.setAttribute("aria-sort", view.order === "asc" ? "ascending" : "descending");
  });
}

function showRegistrations(r, now) {
  view.matched = r.matched;
  if (view.offset > 0 && view.offset >= r.matched) { // what was on this page is gone
    view.offset = Math.max(0, Math.floor((r.matched - 1) / view.limit) * view.limit);
    look();
    return;
  }
  text($("matched"), r.matched === r.total ? several(r.total, "registration", "registrations") : `${count(r.matched)} of ${count(r.total)}`);
  showStates(r.states);
  const body = $("rows");
  const shown = new Map();
  const seen = new Map();
  r.rows.forEach((row, i) => {
    const before = view.seen.get(row.id);
    seen.set(row.id, { n: row.notifications, now });
    const tr = view.rows.get(row.id) || newRow();
    shown.set(row.id, tr);
    const per = before && now > before.now ? (row.notifications - before.n) / ((now - before.now) / 1000) : null;
    fillRow(tr, row, per, now);
    if (body.children[i] !== tr) body.insertBefore(tr, body.children[i] || null);
  });
  for (const [id, tr] of view.rows) if (!shown.has(id)) tr.remove();
  view.rows = shown;
  view.seen = seen;
  const none = body.querySelector(".none");
  if (none) none.parentNode.remove();
  if (!r.rows.length) make("td", { class: "none", colspan: columns.length, text: r.total ? "Nothing is found." : "Nothing is registered." }, make("tr", {}, body));
  const from = r.matched ? r.offset + 1 : 0;
  text($("page"), `${count(from)}–${count(r.offset + r.rows.length)} of ${count(r.matched)}`);
  $("first").disabled = $("previous").disabled = r.offset === 0;
  $("next").disabled = $("last").disabled = r.offset + r.rows.length >= r.matched;
}

function showStates(states) {
  const select = $("state");
  const names = Object.keys(states).sort();
  if (view.state && !names.includes(view.state)) names.push(view.state);
  const options = ["", ...names];
  if ([...select.options].map((o) => o.value).join() !== options.join()) {
    select.replaceChildren();
    for (const name of options) make("option", { value: name }, select);
    select.value = view.state;
  }
  for (const o of select.options) text(o, o.value ? `${o.value} (${count(states[o.value] || 0)})` : "any");
}

function newRow() {
  const tr = document.createElement("tr");
  for (const c of columns) make("td", { class: c.number ? "number" : ["key", "local", "remote"].includes(c.name) ? "code" : "" }, tr);
  const button = make("button", { type: "button", title: "Trace this socket" }, tr.children[0]);
  button.addEventListener("click", () => {
    $("trace-socket").value = button.textContent;
    startTrace();
    $("trace").scrollIntoView();
  });
  return tr;
}

function fillRow(tr, row, per, now) {
  const cell = tr.children;
  text(cell[0].firstChild, String(row.socket));
  text(cell[1], row.key);
  cell[1].title = row.key;
  text(cell[2], row.local || (row.gone ? "–" : row.network === "unix" || row.network === "unixgram" ? row.network : "–"));
  text(cell[3], row.remote || "");
  cell[2].title = row.gone || "";
  text(cell[4], row.filter);
  text(cell[5], row.trigger.replace("|", ", "));
  if (!cell[6].firstChild) make("span", {}, cell[6]);
  cell[6].firstChild.className = "state " + row.state;
  text(cell[6].firstChild, row.state + (row.pending ? ", pending" : ""));
  text(cell[7], count(row.notifications));
  text(cell[8], per === null ? "" : rate(per));
  const last = row.last_time ? Date.parse(row.last_time) : 0;
  text(cell[9], last ? `${row.last} ${span(now - last)} ago` : "never");
  cell[10].title = row.since || "";
  const since = row.since ? Date.parse(row.since) : 0;
  text(cell[10], since ? span(now - since) : "");
  tr.className = since && now - since < 3000 ? "new" : "";
}

function drawCharts() {
  for (const c of charts) c.draw(view.samples, view.range);
  for (const c of serverCharts) c.draw(view.served, view.range);
  for (const c of processCharts) c.draw(view.process, view.range);
}

// ---- tracing ----

function startTrace() {
  stopTrace();
  const parameters = new URLSearchParams({ port: view.port, socket: $("trace-socket").value.trim(), kind: $("trace-kind").value });
  const stream = new EventSource("trace?" + parameters);
  view.trace = stream;
  let seen = 0, missed = 0;
  const say = () => text($("traced"), `${count(seen)} entries` + (missed ? `, ${count(missed)} missed` : ""));
  stream.onopen = say;
  stream.onmessage = (message) => {
    const events = JSON.parse(message.data);
    for (const e of events) {
      if (e.kind === "missed") missed += e.missed;
      else seen++;
    }
    say();
    showEvents(events);
  };
  stream.onerror = () => {
    if (stream.readyState !== EventSource.CLOSED) return; // it tries again by itself
    if (view.trace === stream) stopTrace();
    text($("traced"), "The trace was refused, or the port is closed.");
  };
  const button = $("trace-toggle");
  text(button, "Stop");
  button.setAttribute("aria-pressed", "true");
}

function stopTrace() {
  if (view.trace) view.trace.close();
  view.trace = null;
  const button = $("trace-toggle");
  text(button, "Start");
  button.setAttribute("aria-pressed", "false");
}

function showEvents(events) {
  const body = $("events");
  const rows = document.createDocumentFragment();
  for (const e of events.slice(-keptEvents).reverse()) {
    const tr = make("tr", {}, rows);
    const what = e.kind === "missed" ? `${count(e.missed)} missed` : e.kind;
    const cells = [clock(new Date(e.time)), what, e.socket ? String(e.socket) : "", e.kind === "posted" ? "data " + (e.data || 0) : e.events || "", e.key || "", e.local || "", e.remote || ""];
    cells.forEach((words, i) => make("td", { text: words, class: i === 2 ? "number" : i > 3 || i === 0 ? "code" : "" }, tr));
  }
  body.prepend(rows);
  while (body.children.length > keptEvents) body.lastChild.remove();
}

// ---- the hands ----

function setPaused(on) {
  view.paused = on;
  $("pause").setAttribute("aria-pressed", String(on));
  text($("pause"), on ? "Go on" : "Pause");
  if (on) health("paused", "");
  else loop();
}

function turnPage(by) {
  const to = view.offset + by * view.limit;
  if (to < 0 || to >= view.matched) return;
  again({ offset: to });
}

function onKey(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || $("help").open) return;
  const field = e.target.closest("input, select");
  if (e.key === "Escape" && field) {
    if (field === $("search") && field.value) {
      field.value = "";
      again({ q: "", offset: 0 });
    } else field.blur();
    e.preventDefault();
    return;
  }
  if (field) return;
  const act = {
    "/": () => $("search").focus(),
    n: () => turnPage(1),
    p: () => turnPage(-1),
    0: () => Chart.zoomTo(null),
    s: () => view.servers.length && chooseTab(view.tab === "server" ? "port" : "server"),
    t: () => (view.trace ? stopTrace() : startTrace()),
    ".": () => setPaused(!view.paused),
    "?": () => $("help").showModal(),
  }[e.key];
  if (!act) return;
  e.preventDefault();
  act();
}

function begin() {
  for (const [name, title, explain] of [
    ["registrations", "Registrations", "Sockets that the port watches."],
    ["notifications", "Notifications/s", "What the port has told its callers."],
    ["saved", "Enables saved", "Enables that needed no system call."],
    ["wakeups", "Wake-ups/s", "Sleeping calls that were woken."],
    ["queued", "Queued", "Posts and removals that wait for a call."],
    ["waiting", "Asleep", "Calls that wait for something to happen."],
    ["accepted", "Accepted/s", "Connections that the port has accepted."],
    ["completed", "Completed/s", "Overlapped operations that have ended."],
    ["stale", "Stale reports/s", "Reports of the kernel that came too late."],
  ]) cards[name] = card($("cards"), name, title, explain);
  makeProcessView();
  const box = $("charts");
  charts.push(
    new Chart(box, { title: "Notifications per second", explain: "What the port has told its callers.", series: [{ value: perSecond("notifications") }], format: rate }),
    new Chart(box, { title: "Enables per second", explain: "Saved ones needed no system call.", series: [{ name: "saved", value: perSecond("fast_enables") }, { name: "asked the kernel", value: perSecond("rearms") }], format: rate }),
    new Chart(box, { title: "Registrations", explain: "Sockets that the port watches.", series: [{ value: (s) => s.registrations }], format: count }),
    new Chart(box, { title: "Queue and waiters", explain: "What waits for a call, and calls that wait.", series: [{ name: "queued", value: (s) => s.queued }, { name: "asleep", value: (s) => s.waiting }], format: count }),
  );
  for (const reset of document.querySelectorAll(".unzoom")) reset.addEventListener("click", () => Chart.zoomTo(null));
  Chart.onzoom = () => document.querySelectorAll(".unzoom").forEach((b) => (b.hidden = !Chart.zoom));
  for (const name of ["server", "port"]) {
    $("tab-" + name).addEventListener("click", () => chooseTab(name));
    $("tab-" + name).addEventListener("keydown", (e) => {
      if (e.key !== "ArrowLeft" && e.key !== "ArrowRight") return;
      chooseTab(view.tab === "server" ? "port" : "server");
      $("tab-" + view.tab).focus();
    });
  }
  $("server").addEventListener("change", (e) => {
    Chart.zoomTo(null);
    Object.assign(view, { server: e.target.value, served: [], servedSince: null });
    again({});
  });
  recall();
  showColumns();

  $("port").addEventListener("change", (e) => {
    Chart.zoomTo(null);
    choosePort(e.target.value);
    again({});
  });
  let typing = 0;
  $("search").addEventListener("input", (e) => {
    clearTimeout(typing);
    typing = setTimeout(() => again({ q: e.target.value.trim(), offset: 0 }), 150);
  });
  $("state").addEventListener("change", (e) => again({ state: e.target.value, offset: 0 }));
  $("limit").addEventListener("change", (e) => again({ limit: Number(e.target.value), offset: 0 }));
  $("range").addEventListener("change", (e) => {
    view.range = Number(e.target.value);
    remember();
    Chart.zoomTo(null);
    drawCharts();
  });
  $("first").addEventListener("click", () => again({ offset: 0 }));
  $("previous").addEventListener("click", () => turnPage(-1));
  $("next").addEventListener("click", () => turnPage(1));
  $("last").addEventListener("click", () => again({ offset: Math.floor((view.matched - 1) / view.limit) * view.limit }));
  $("pause").addEventListener("click", () => setPaused(!view.paused));
  $("help-open").addEventListener("click", () => $("help").showModal());
  $("trace-toggle").addEventListener("click", () => (view.trace ? stopTrace() : startTrace()));
  $("trace-clear").addEventListener("click", () => $("events").replaceChildren());
  for (const id of ["trace-socket", "trace-kind"]) {
    $(id).addEventListener("change", () => view.trace && startTrace());
  }
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", () => document.hidden || loop());
  window.addEventListener("pagehide", stopTrace);
  loop().then(remember);
}

begin();
