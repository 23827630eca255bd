"use strict";

// The tab of servers and lots.

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; Math.abs(n) >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (i && n < 10 ? n.toFixed(1) : Math.round(n).toLocaleString("en")) + " " + units[i];
}

// powers are the steps of an axis of bytes.
const powers = Array.from({ length: 50 }, (_, i) => 2 ** i);

function duration(s) {
  if (s === null || s === undefined) return "–";
  for (const [unit, one] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
    if (s >= one || unit === "µs") return (s / one < 10 && s > 0 ? (s / one).toFixed(1) : Math.round(s / one)) + " " + unit;
  }
}

// quantile estimates a quantile of the calls between two samples, as Prometheus does, or returns null without calls.
function quantile(q, now, before, name = "call_time") {
  const a = now[name]?.buckets;
  if (!a) return null;
  const b = before?.[name]?.buckets || [];
  const counts = a.map((n, i) => Math.max(n - (b[i] || 0), 0));
  const rank = q * counts.reduce((sum, n) => sum + n, 0);
  if (!rank) return null;
  let below = 0, from = 0;
  for (let i = 0; i < view.bounds.length; i++) {
    const to = view.bounds[i];
    if (counts[i] && below + counts[i] >= rank) return from + ((to - from) * (rank - below)) / counts[i];
    below += counts[i];
    from = to;
  }
  return from;
}

const sum = (c, names) => names.reduce((n, name) => n + (c[name] || 0), 0);
const listed = (c, names) => Object.entries(names).filter(([name]) => c[name]).map(([name, words]) => `${count(c[name])} ${words}`).join(", ");

// Each card has a value, a note, and a sentence that says what it is.
const parkCards = [
  ["parked", "Parked", "Connections that wait for their peer, without a goroutine.", (c) => [count(c.parked || 0), c.accepted ? `${count(c.conns || 0)} open, ${count(c.accepted)} accepted` : ""]],
  ["running", "Running", "Calls that run now, each on a goroutine.", (c) => [count(c.running || 0), several(c.workers || 0, "worker", "workers")]],
  ["waiting", "Waiting for a worker", "What is ready and waits for a worker: connections beyond MaxRunning, or notifications of a server.", (c) => [count(c.waiting || 0), ""]],
  ["calls", "Requests/s", "Requests, or calls of Handler; for a lot, how often connections are parked.", (c, r) => [rate(r(c.calls ? "calls" : "parks")), count(c.calls || c.parks || 0) + " in all" + (c.rejected ? `, ${count(c.rejected)} rejected` : "")]],
  ["time", "Handler time", "How long the middle call of the last seconds took, and the slowest in a hundred.", handlerTime],
  ["suspended", "Suspended requests", "Requests that wait for an answer (park.Suspend), and how others have ended.", suspendedRequests],
  ["refused", "Refused", "Connections closed at once because of MaxConns or MaxConnsPerAddr.", (c) => [count(c.refused || 0), listed(c, { refused_per_addr: "per address" })]],
  ["timeouts", "Timeouts", "Parked connections that were idle for too long.", (c) => [count(c.idle || 0), ""]],
  ["unparkable", "Unparkable", "Connections that keep a goroutine each. The log names their type.", (c) => [count(c.unparkable || 0), c.unparked_http2 ? count(c.unparked_http2) + " of HTTP/2 left to net/http" : ""]],
  ["handshakes", "TLS handshakes", "Completed since the start.", (c) => [count(c.handshakes || 0), count(c.failed_handshakes || 0) + " failed"]],
  ["faults", "Panics", "Handlers that panicked. Each has cost its connection.", (c) => [count(c.panics || 0), ""]],
];
const tunnelCards = [
  ["conns", "Tunnels", "Pairs of connections that are joined now.", (c) => [count(c.conns || 0), count(c.accepted || 0) + " in all"]],
  parkCards.find(([name]) => name === "parked"),
  parkCards.find(([name]) => name === "running"),
  ["in", "There/s", "Bytes from the first connections to the second.", (c, r) => [bytes(r("bytes_in")), bytes(c.bytes_in || 0) + " in all"]],
  ["out", "Back/s", "Bytes from the second connections to the first.", (c, r) => [bytes(r("bytes_out")), bytes(c.bytes_out || 0) + " in all"]],
  ["queued", "Queued", "Bytes that wait because peers read slowly.", (c) => [bytes(c.queued_bytes || 0), ""]],
  ["refused", "Refused", "Pairs beyond MaxConns.", (c) => [count(c.refused || 0), ""]],
  ["timeouts", "Timeouts", "Tunnels in which nothing moved for too long, or that had no handshake.", (c) => [count(sum(c, ["idle", "slow", "late_handshakes"])), ""]],
  ["unparkable", "Unparkable", "Connections that keep a goroutine each. The log names their type.", (c) => [count(c.unparkable || 0), count(c.copied || 0) + " copied by a proxy"]],
  ["faults", "Panics", "Methods of connections, and functions, that panicked.", (c) => [count(c.panics || 0), ""]],
];
const serverCards = [
  ["conns", "Connections", "Peers that are connected now.", (c) => [count(c.conns || 0), listed(c, { handshaking: "in a handshake", hijacked: "hijacked" }) || count(c.accepted || 0) + " accepted"]],
  ["calls", "Requests/s", "Calls of the handler's Data. A large request takes several, and several small ones may share one.", (c, r) => [rate(r("calls")), count(c.calls || 0) + " in all"]],
  ["in", "Received/s", "Bytes from peers, with TLS the encrypted ones.", (c, r) => [bytes(r("bytes_in")), bytes(c.bytes_in || 0) + " in all"]],
  ["out", "Sent/s", "Bytes to peers, with TLS the encrypted ones.", (c, r) => [bytes(r("bytes_out")), bytes(c.bytes_out || 0) + " in all"]],
  ["time", "Handler time", "How long the middle call of the last seconds took, and the slowest in a hundred.", handlerTime],
  ["queued", "Queued", "Bytes that wait because peers read slowly.", (c) => [bytes(c.queued_bytes || 0), count(c.refused_writes || 0) + " writes refused"]],
  ["running", "Busy workers", "Goroutines that call handlers now. One that is busy for long is replaced.", (c) => [`${count(c.running || 0)} of ${count(c.workers || 0)}`, c.longest ? "oldest call " + duration(c.longest) : ""]],
  ["refused", "Refused", "Connections closed before Open, because of a limit such as MaxConns, or of a bad PROXY header.", (c) => [count(sum(c, ["refused", "bad_preambles"])), listed(c, { refused_per_addr: "per address", bad_preambles: "bad headers" })]],
  ["timeouts", "Timeouts", "Connections closed because their peer was silent, did not read, or sent half a message.", (c) => [count(sum(c, ["idle", "slow", "stalled", "late_handshakes"])), listed(c, { idle: "idle", slow: "slow", stalled: "stalled", late_handshakes: "handshakes" })]],
  ["handshakes", "TLS handshakes", "Completed since the start, and those that failed.", (c) => [count(c.handshakes || 0), count(c.failed_handshakes || 0) + " failed" + (c.evicted_handshakes ? `, ${count(c.evicted_handshakes)} evicted` : "")]],
  ["faults", "Faults", "Handlers that panicked, or did not return for StuckAfter.", (c) => [count(sum(c, ["panics", "stuck"])), listed(c, { panics: "panics", stuck: "stuck" })]],
];

function handlerTime(c, r, then) {
  if (!c.call_time) return ["–", "not measured: set TimeCalls"];
  if (quantile(0.5, c, then) === null) return ["–", `no call now; ${duration(quantile(0.5, c))} in all`];
  return [duration(quantile(0.5, c, then)), duration(quantile(0.99, c, then)) + " slowest 1 %"];
}

function suspendedRequests(c) {
  const ended = listed(c, { resumed: "resumed", wait_timeouts: "timed out", clients_gone: "abandoned by the client", waits_closed: "closed" });
  const middle = quantile(0.5, c, undefined, "wait_time");
  const notes = [
    c.longest_wait ? "oldest " + duration(c.longest_wait) : "", listed(c, { blocked: "with a goroutine" }),
    ended ? "ended: " + ended + (middle === null ? "" : ", the middle one after " + duration(middle)) : "", listed(c, { refused_suspends: "refused" }),
  ];
  return [count(c.suspended || 0), notes.filter((n) => n).join("; ")];
}

const serverCharts = [];
function makeServerView(kind) {
  const box = $("server-charts"), list = $("server-cards");
  Chart.all = Chart.all.filter((c) => !serverCharts.includes(c));
  for (const c of serverCharts.splice(0)) c.u.destroy();
  box.replaceChildren();
  list.replaceChildren();
  const own = kind === "server.Server", moves = own || kind === "park.Tunnels";
  view.cards = {};
  for (const [name, title, explain, value] of own ? serverCards : moves ? tunnelCards : parkCards) {
    view.cards[name] = { ...card(list, "server-" + name, title, explain), of: value };
  }
  const calls = kind === "park.Lot" || kind === "park.Tunnels" ? "parks" : "calls";
  serverCharts.push(
    new Chart(box, { title: own || calls === "calls" ? "Requests per second" : "Parks per second", explain: "How much work arrives.", series: [{ value: perSecond(calls) }], format: rate }),
    moves
      ? new Chart(box, { title: "Bytes per second", explain: own ? "What the server receives and sends." : "What the tunnels move, from the first connections to the second and back.", series: [{ name: own ? "received" : "there", value: perSecond("bytes_in") }, { name: own ? "sent" : "back", value: perSecond("bytes_out") }], format: bytes, steps: powers })
      : new Chart(box, { title: "Workers", explain: "Goroutines, and those of them that run a call.", series: [{ name: "workers", value: (s) => s.workers || 0 }, { name: "running", value: (s) => s.running || 0 }], format: count }),
    own
      ? new Chart(box, { title: "Connections", explain: "Peers that are connected, and those of them in a TLS handshake.", series: [{ name: "connected", value: (s) => s.conns || 0 }, { name: "in a handshake", value: (s) => s.handshaking || 0 }], format: count })
      : new Chart(box, { title: "Connections", explain: "Those that wait without a goroutine, and those that wait for a worker.", series: [{ name: "parked", value: (s) => s.parked || 0 }, { name: "waiting for a worker", value: (s) => s.waiting || 0 }], format: count }),
    new Chart(box, { title: "Handler time", explain: "The middle call of each second, and the slowest in a hundred.", empty: "Not measured. Set TimeCalls to see how long calls take.",
      series: [{ name: "median", value: (s, b) => quantile(0.5, s, b) }, { name: "slowest 1 %", value: (s, b) => quantile(0.99, s, b) }], format: duration }),
  );
  if (kind === "park.HTTPServer") {
    serverCharts.push(new Chart(box, { title: "Suspended requests", explain: "Requests that wait for an answer, and those of them that keep a goroutine.", series: [{ name: "suspended", value: (s) => s.suspended || 0 }, { name: "with a goroutine", value: (s) => s.blocked || 0 }], format: count }));
  }
}

// ---- the process ----

const processCharts = [];
function makeProcessView() {
  for (const [name, title, explain] of [
    ["goroutines", "Goroutines", "Those of the whole process."],
    ["memory", "Memory", "What Go has of the system, for the whole process."],
    ["objects", "Objects", "Memory of the heap, with what was not collected yet."],
    ["stacks", "Stacks", "Memory of goroutines' stacks."],
    ["collections", "Collections", "Of garbage, since the start of the process."],
  ]) cards[name] = card($("process-cards"), name, title, explain);
  const box = $("process-charts");
  processCharts.push(
    new Chart(box, { title: "Goroutines", explain: "Those of the whole process.", series: [{ value: (p) => p.goroutines }], format: count }),
    new Chart(box, { title: "Memory", explain: "What Go has of the system, and how much of it is objects and stacks.", series: [{ name: "all", value: (p) => p.memory }, { name: "objects", value: (p) => p.objects }, { name: "stacks", value: (p) => p.stacks }], format: bytes, steps: powers }),
  );
}

const lastOfProcess = () => (view.process.length ? view.process[view.process.length - 1].number : "");

function showProcess(p) {
  if (view.processSince !== p.observed) { // another page, whose samples are numbered from 0
    const known = view.processSince !== null;
    view.processSince = p.observed;
    view.process = [];
    if (known) return; // what was asked for went by the numbers of the one before
  }
  for (const s of p.samples) {
    s.at = Date.parse(s.time);
    view.process.push(s);
  }
  view.process = view.process.slice(-600);
  const now = p.counts;
  set("goroutines", count(now.goroutines), "");
  set("memory", bytes(now.memory), "");
  set("objects", bytes(now.objects), "");
  set("stacks", bytes(now.stacks), now.goroutines ? bytes(now.stacks / now.goroutines) + " a goroutine" : "");
  set("collections", count(now.collections), "");
  for (const c of processCharts) c.draw(view.process, view.range, now, now);
}

// lookAtServer asks for the server and shows it.
async function lookAtServer(turn) {
  const last = view.served.length ? view.served[view.served.length - 1].number : "";
  const v = await ask("server", { server: view.server, after: last, process: lastOfProcess() });
  if (turn !== asking) return;
  if (view.servedSince !== v.observed) { // another page, whose samples are numbered from 0
    const known = view.servedSince !== null;
    view.servedSince = v.observed;
    view.served = [];
    if (known) {
      view.listed = false;
      return loop();
    }
  }
  if (view.kind !== v.kind) makeServerView(view.kind = v.kind);
  for (const s of v.samples) {
    s.at = Date.parse(s.time);
    view.served.push(s);
  }
  view.served = view.served.slice(-600);
  const now = { ...v.counts, at: Date.parse(v.time) };
  const then = view.served[Math.max(view.served.length - 6, 0)]; // rates are those of the last seconds
  const r = (name) => (then && now.at > then.at ? perSecond(name)(now, then) : 0);
  for (const c of Object.values(view.cards)) {
    const [value, note] = c.of(now, r, then);
    text(c.value, value);
    text(c.note, note);
  }
  text($("server-kind"), v.kind);
  text($("observed"), "observed for " + span(now.at - Date.parse(v.observed)));
  for (const c of serverCharts) c.draw(view.served, view.range, now, then);
  showProcess(v.process);
  health("live", "live");
}
