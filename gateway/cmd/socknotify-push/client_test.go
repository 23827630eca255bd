package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// page is what the tests below run in: an object with what a client has got, by topic.
const page = `
	window.got = []; window.gaps = []; window.errors = []; window.states = [];
	window.subscribe = (push, topic, options = {}) => push.subscribe(topic, e => got.push(topic + ': ' + e.data),
		{ onGap: g => gaps.push(g.reason), onError: e => errors.push(topic + ' ' + e.status), ...options });
	window.start = async (nodes, options) => {
		const { connect } = await import(location.origin + '/push.js');
		const push = connect(nodes, { retry: 50, ...options });
		push.onState = s => states.push(s);
		return push;
	};
`

// ready makes a page of the demo ready for tests of the client: without the demo's own connections.
func (b *tab) ready() *tab {
	b.t.Helper()
	until(b.t, "the page is loaded", func() bool {
		return b.eval("document.readyState === 'complete' && document.querySelectorAll('.close').length === 3") == true
	})
	b.eval(page)
	b.eval("document.querySelectorAll('.close').forEach(e => e.click())")
	return b
}

// has waits until the page has got these events, and no other. Those of different topics may come in
// another order.
func (b *tab) has(events ...string) {
	b.t.Helper()
	slices.Sort(events)
	b.is("[...got].sort().join('|')", strings.Join(events, "|"))
}

func (b *tab) is(expression string, want any) {
	b.t.Helper()
	var got any
	defer func() {
		if b.t.Failed() {
			b.t.Logf("%s is %v, want %v; states: %v", expression, got, want, b.eval("states.join()"))
		}
	}()
	until(b.t, expression, func() bool {
		got = b.eval(expression)
		return got == want
	})
}

// post publishes, by any of the nodes.
func post(t *testing.T, nodes []string, topic, data, key string) {
	t.Helper()
	i := 0
	until(t, "the event is stored", func() bool {
		i++
		r, err := http.NewRequest("POST", nodes[i%len(nodes)]+"/publish?topic="+topic, strings.NewReader(data))
		must(t, err)
		r.Header.Set("Idempotency-Key", key)
		answer, err := caller.Do(r)
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode < 300
	})
}

// Several topics of a page share a connection, by each of the ways. Topics come and go, and what is
// of several filters comes once for each subscription.
func TestClientTopics(t *testing.T) {
	for _, way := range []string{"websocket", "sse", "poll"} {
		t.Run(way, func(t *testing.T) {
			url, debug, _ := start(t, "--store", t.TempDir(), "--demo", "--heartbeat", "2s")
			b := openTab(t, url+"/demo/").ready()
			post1 := func(topic, data string) { post(t, []string{url}, topic, data, "") }
			until(t, "the demo has left", func() bool { return b.joined(debug) == 0 })
			b.eval(fmt.Sprintf(`(async () => {
				push = await start(location.origin, { transports: [%q] });
				a = subscribe(push, 'a.*'); subscribe(push, 'b'); subscribe(push, 'live.x');
			})()`, way))
			until(t, "it has joined", func() bool { return b.joined(debug) == 3 })
			post1("a.1", "1")
			b.has("a.*: 1")
			post1("b", "2")
			b.has("a.*: 1", "b: 2")
			if way != "poll" { // a live event between two polls is lost
				post1("live.x", "3")
			} else {
				b.eval("got.push('live.x: 3')")
			}
			b.has("a.*: 1", "b: 2", "live.x: 3")
			b.eval("got.length = 0; c = subscribe(push, '*.1')")
			until(t, "it has joined the fourth", func() bool { return b.joined(debug) == 4 })
			post1("a.1", "4")
			b.has("a.*: 4", "*.1: 4")
			b.eval("got.length = 0; a.close()")
			until(t, "it has left one", func() bool { return b.joined(debug) == 3 })
			post1("a.1", "5")
			post1("a.2", "6")
			post1("b", "7")
			b.has("*.1: 5", "b: 7")
			b.eval("id = c.lastId; push.close()")
			until(t, "it has left", func() bool { return b.joined(debug) == 0 })
			post1("c.1", "8")
			b.eval(fmt.Sprintf(`got.length = 0; (async () => {
				push = await start(location.origin, { transports: [%q] });
				subscribe(push, '*.1', { after: id }); subscribe(push, 'b', { after: 'first' });
			})()`, way))
			b.has("*.1: 8", "b: 2", "b: 7")
			b.is("states.at(-1) + errors.length + gaps.length", "open00")
		})
	}
}

// A page whose network lets no WebSocket through goes on by Server-Sent Events, and one that lets no
// stream through by long polling.
func TestClientFallsBack(t *testing.T) {
	url, debug, _ := start(t, "--store", t.TempDir(), "--demo", "--heartbeat", "2s")
	for blocked, want := range map[string]string{
		"WebSocket = class { constructor() { setTimeout(() => this.onclose()) } close() {} }": "/events",
		`WebSocket = class { constructor() { setTimeout(() => this.onclose()) } close() {} };
			stock = fetch; fetch = (a, o) => a.includes('/events') ? Promise.reject(new TypeError('blocked')) : stock(a, o)`: "/poll",
	} {
		b := openTab(t, url+"/demo/").ready()
		until(t, "the demo has left", func() bool { return b.joined(debug) == 0 })
		b.eval(blocked + `; performance.clearResourceTimings();
			(async () => { push = await start(location.origin); subscribe(push, 'a') })()`)
		until(t, "it has joined", func() bool { return b.joined(debug) == 1 })
		post(t, []string{url}, "a", "hello", "")
		b.has("a: hello")
		b.eval("push.close()")
		b.is(fmt.Sprintf("performance.getEntriesByType('resource').some(e => e.name.includes(%q))", want), true)
		until(t, "it has left", func() bool { return b.joined(debug) == 0 })
	}
}

// Tabs that share a connection get what each has subscribed to. When the one that has the connection
// is closed, another one goes on, and no event is missed.
func TestClientTabs(t *testing.T) {
	url, debug, _ := start(t, "--store", t.TempDir(), "--demo")
	nodes := []string{url}
	first := openTab(t, url+"/demo/")
	tabs := []*tab{first, first.another(url + "/demo/"), first.another(url + "/demo/")}
	for i, b := range tabs {
		b.ready()
		b.eval(fmt.Sprintf(`(async () => {
			push = await start(location.origin, { share: 'test' });
			subscribe(push, 'all'); subscribe(push, 'tab.%d');
		})()`, i))
		b.is("states.at(-1)", "open") // the first has the connection
	}
	until(t, "one connection has all topics", func() bool { return tabs[0].joined(debug) == 4 && conns(t, debug) == 1 })
	post(t, nodes, "all", "1", "")
	post(t, nodes, "tab.2", "2", "")
	tabs[0].has("all: 1")
	tabs[1].has("all: 1")
	tabs[2].has("all: 1", "tab.2: 2")
	tabs[0].close()
	for i := range 20 { // also while no tab has the connection
		post(t, nodes, "all", fmt.Sprint("x", i), "")
	}
	want := []string{"all: 1"}
	for i := range 20 {
		want = append(want, fmt.Sprint("all: x", i))
	}
	tabs[1].has(slices.Clone(want)...)
	tabs[2].has(append(want, "tab.2: 2")...)
	until(t, "the topics of the closed tab are gone", func() bool { return tabs[1].joined(debug) == 3 && conns(t, debug) == 1 })
}

// conns is the number of connections of a node, by its status page.
func conns(t *testing.T, debug string) int {
	t.Helper()
	_, body := ask(t, "GET", debug+"/status", "")
	_, after, _ := strings.Cut(body, `"Conns":`)
	var n int
	fmt.Sscan(after, &n)
	return n
}

// A client asks for a token for each connection, so it goes on when one has expired. Topics that its
// token does not allow are refused, and the others go on.
func TestClientTokens(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	key := []byte("a secret of 32 bytes, for a test")
	must(t, os.WriteFile(secret, key, 0o600))
	url, debug, _ := start(t, "--store", t.TempDir(), "--demo", "--jwt-secret", secret)
	token := func(d time.Duration) string {
		s, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"exp": time.Now().Add(d).Unix(),
			"push": map[string]any{"read": []string{"a", "b"}, "write": []string{"a"}}}).SignedString(key)
		must(t, err)
		return s
	}
	b := openTab(t, url+"/demo/").ready()
	b.eval(fmt.Sprintf(`tokens = [%q, %q, %q]; (async () => {
		push = await start(location.origin, { token: async () => tokens.length > 1 ? tokens.shift() : tokens[0] });
		subscribe(push, 'a'); subscribe(push, 'other'); subscribe(push, 'b');
	})()`, token(-time.Minute), token(3*time.Second), token(time.Hour)))
	b.is("errors.join()", "other 403")
	b.is("states.at(-1)", "open")
	b.is("tokens.length", float64(1)) // the second has expired
	b.is("states.at(-1)", "open")
	until(t, "it has joined", func() bool { return b.joined(debug) == 2 })
	b.eval("push.publish('a', 'hello')")
	b.has("a: hello")
	if got := b.eval("push.publish('b', 'x').catch(e => e.status)"); got != float64(http.StatusForbidden) {
		t.Errorf("publishing what is not allowed: %v", got)
	}
}

// The nodes of a cluster are killed one after the other, and start again. The page gets each event
// once and in order, by each way.
func TestClientOfCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three processes, and restarts each")
	}
	members, nodes := startMembers(t, "--demo", "--origins", "*", "--heartbeat", "2s")
	b := openTab(t, nodes[0]+"/demo/").ready()
	b.eval(fmt.Sprintf(`ways = {}; (async () => {
		for (const way of ['websocket', 'sse', 'poll']) {
			ways[way] = [];
			const push = await start(%q.split(","), { transports: [way] });
			push.subscribe('a.>', e => ways[way].push(e.data), { onGap: g => gaps.push(g.reason) });
			await new Promise(r => { push.onState = s => { if (s === 'open') r() } });
		}
	})()`, strings.Join(nodes, ",")))
	n := 0
	publish := func(times int) {
		for range times {
			post(t, nodes, fmt.Sprint("a.", n%3), fmt.Sprint(n), fmt.Sprint("key ", n))
			n++
		}
	}
	publish(20)
	for _, m := range members {
		m.kill()
		publish(20)
		m.start(t)
		publish(20)
	}
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	for _, way := range []string{"websocket", "sse", "poll"} {
		// Events of different topics need not come in the order in which they were stored.
		b.is(fmt.Sprintf("[...ways[%q]].sort((x, y) => x - y).join()", way), strings.Join(all, ","))
		b.is(fmt.Sprintf("[0, 1, 2].every(k => ways[%q].filter(x => x %% 3 === k).every((x, i) => x == 3 * i + k))", way), true)
	}
	b.is("gaps.length", float64(0))
}

// The types of the client are those of its code, as far as a compiler of TypeScript knows, and Node.js
// loads it.
func TestClientInNode(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("%s needs Node.js: %v", t.Name(), err)
	}
	url, _, _ := start(t, "--store", t.TempDir())
	script := filepath.Join(t.TempDir(), "test.mjs")
	module, err := filepath.Abs("../../js/push.js")
	must(t, err)
	must(t, os.WriteFile(script, []byte(fmt.Sprintf(`
		import { connect } from %q
		const push = connect(%q)
		const got = new Promise(r => push.subscribe('a', e => r(e.data)))
		await new Promise(r => { push.onState = s => { if (s === 'open') r() } })
		await push.publish('a', 'hello')
		console.log(await got)
		push.close()
	`, module, url)), 0o600))
	out, err := exec.CommandContext(t.Context(), node, script).CombinedOutput()
	if err != nil || string(out) != "hello\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// teamScript is what TestClientForTeams runs: url, tokens and way are set before. Each step waits
// for what must come.
const teamScript = `
	const stock = fetch
	let posts = 0
	globalThis.fetch = (a, o) => { if (String(a).includes('/publish')) posts++; return stock(a, o) }
	const until = async (what, f) => {
		for (let i = 0; !f(); i++) {
			if (i > 6000) { console.log('timed out:', what, JSON.stringify(globalThis.dump?.())); process.exit(1) }
			await new Promise(r => setTimeout(r, 10))
		}
	}
	const is = (what, got, want) => { if (got !== want) console.log(what, 'is', got, 'and not', want) }
	const { connect, matches } = await import(module)
	is('a wildcard', matches('>', '$presence.a'), false)
	const writer = connect(url, { token: tokens.bob, transports: ['sse'] })
	for (let i = 0; i < 5; i++) await writer.publish('a', String(i))
	is('posts', posts, 5)

	// history, also of a topic that is connected already
	const push = connect(url, { token: tokens.alice, transports: [way, 'sse'] }) // that says why it refuses
	const one = [], two = [], rest = []
	push.subscribe('a', e => one.push(e.data), { last: 2 })
	await until('two events', () => one.length === 2 && push.state === 'open')
	const second = push.subscribe('a', e => two.push(e.data), { last: 3 })
	push.subscribe('none', e => rest.push(e.data), { last: 3 })
	await until('three events', () => two.length === 3)
	await until('the connection is open', () => push.state === 'open')
	await writer.publish('a', '5')
	await writer.publish('none', 'first')
	await until('the next', () => one.length === 3 && two.length === 4 && rest.length === 1)
	is('one', one.join(), '3,4,5')
	is('two', two.join(), '2,3,4,5')

	// publishing: over the WebSocket, unless the event is large
	posts = 0
	const { id, duplicate } = await push.publish('a', 'sent', { key: 'key' })
	await until('it is delivered', () => one.includes('sent') && two.includes('sent'))
	is('a duplicate', duplicate, false)
	is('the id', id, second.lastId)
	is('again', (await push.publish('a', 'sent', { key: 'key' })).duplicate, true)
	is('the status', await push.publish('other', 'x').catch(e => e.status), 403)
	is('posts', posts, way === 'websocket' ? 0 : 3)
	const live = await push.publish('live.a', 'x')
	is('a live id', live.id, '')
	await push.publish('a', 'x'.repeat(20_000))
	await until('it is delivered', () => one.at(-1).length === 20_000)

	// presence
	const seen = [], late = [], refused = []
	const names = members => members.map(m => m.user).sort().join()
	const watch = connect(url, { token: tokens.backend, transports: [way] })
	watch.presence('room', members => seen.push(names(members)))
	await until('no one is there', () => seen.length > 0)
	is('at first', seen.at(-1), '')
	writer.subscribe('room', () => {})
	await until('bob is there', () => seen.at(-1) === 'bob')
	watch.presence('room', members => late.push(names(members)))
	await until('bob is there for another', () => late.at(-1) === 'bob')
	push.presence('room', () => {}, { onError: e => refused.push(e.status) })
	await until('alice may not', () => refused.length === 1)
	is('alice', refused[0], 403)

	// orders
	const order = path => stock(url + path, { method: 'POST', headers: { Authorization: 'Bearer ' + tokens.backend } })
	const ended = [], ofB = [], ofC = []
	await writer.publish('b', 'first')
	await writer.publish('c', 'first')
	push.subscribe('b', e => ofB.push(e.data), { after: 'first', onError: e => ended.push('b ' + e.status) })
	push.subscribe('c', e => ofC.push(e.data), { after: 'first', onError: e => ended.push('c ' + e.status) })
	await until('the gateway has both topics', () => ofB.length === 1 && ofC.length === 1)
	is('unsubscribe', (await order('/unsubscribe?topic=b&client=' + push.client)).status, 202)
	await until('b has ended', () => ended.length === 1)
	is('the end', ended[0], 'b 403')
	await until('it is connected', () => push.state === 'open')
	await writer.publish('c', 'still')
	await until('c goes on', () => ofC.length === 2)
	is('disconnect', (await order('/disconnect?user=alice')).status, 202)
	await until('all has ended', () => ended.includes('c 403'))
	await until('it stays away', () => push.state === 'idle')
	writer.close()
	await until('bob has left', () => seen.at(-1) === '' && late.at(-1) === '')
	watch.close()
	push.close()
	console.log('done')
`

// History, publishing, presence and orders, with the client in Node.js, by the two ways that have a
// connection.
func TestClientForTeams(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	key := []byte("a secret of 32 bytes, for a test")
	must(t, os.WriteFile(secret, key, 0o600))
	var err error
	tokens := map[string]string{}
	for name, push := range map[string]map[string]any{
		"alice":   {"read": []string{">"}, "write": []string{"a", "live.>"}},
		"bob":     {"read": []string{">"}, "write": []string{">"}},
		"backend": {"presence": []string{"room"}, "control": true},
	} {
		tokens[name], err = jwt.NewWithClaims(jwt.SigningMethodHS256,
			jwt.MapClaims{"sub": name, "exp": time.Now().Add(time.Hour).Unix(), "push": push}).SignedString(key)
		must(t, err)
	}
	all, err := json.Marshal(tokens)
	must(t, err)
	runScript(t, teamScript, []string{"websocket", "sse"}, string(all), "--jwt-secret", secret, "--presence", "room")
}

// changesScript is what TestClientChanges runs, as teamScript; tokens is the secret.
const changesScript = `
	import { createHmac } from 'node:crypto'
	const until = async (what, f) => {
		for (let i = 0; !f(); i++) {
			if (i > 6000) { console.log('timed out:', what, JSON.stringify(globalThis.dump?.())); process.exit(1) }
			await new Promise(r => setTimeout(r, 10))
		}
	}
	const is = (what, got, want) => { if (got !== want) console.log(what, 'is', got, 'and not', want) }
	const text = o => Buffer.from(JSON.stringify(o)).toString('base64url')
	const sign = (sub, seconds) => {
		const signed = text({ alg: 'HS256' }) + '.' + text({ sub, exp: Math.floor(Date.now() / 1000) + seconds,
			push: { read: ['>'], write: ['>'], presence: ['room.1', 'room.2', 'room.3'] } })
		return signed + '.' + createHmac('sha256', tokens).update(signed).digest('base64url')
	}
	const { connect } = await import(module)
	const watch = connect(url, { token: sign('watch', 3600), transports: [way] })
	const moves = []
	let present = 0
	for (const n of [1, 2, 3]) {
		watch.presence('room.' + n, (_, { join, leave }) => {
			present++
			if (join) moves.push('+' + n + join.user + join.client)
			if (leave) moves.push('-' + n + leave.user + leave.client)
		})
	}
	await until('the rosters', () => present >= 3)

	// three topics that open one after the other, with live events in between, and a token that expires
	let asked = 0
	const states = [], live = [], gaps = []
	const push = connect(url, { token: () => { asked++; return sign('alice', 5) }, transports: [way] })
	push.onState = s => states.push(s)
	push.subscribe('live.x', e => live.push(e.data))
	await until('it is open', () => push.state === 'open')
	const writer = connect(url, { token: sign('writer', 3600), transports: ['sse'] })
	await new Promise(r => setTimeout(r, 500)) // it may not have joined yet
	let sent = 0, stop = false
	const sending = (async () => { while (!stop) { await writer.publish('live.x', String(sent)); sent++ } })()
	const got = [[], [], []], rooms = []
	const client = push.client
	for (const n of [1, 2, 3]) {
		rooms.push(push.subscribe('room.' + n, e => got[n - 1].push(e.data), { onGap: g => gaps.push(g) }))
		await until('it has joined ' + n, () => moves.some(m => m.startsWith('+' + n)))
	}
	const wild = []
	globalThis.dump = () => [got, wild, live.length, sent, states, gaps]
	const all = push.subscribe('room.*', e => wild.push(e.topic + e.data), { after: 'first' })
	await writer.publish('room.1', 'a')
	await writer.publish('room.3', 'b')
	await until('the events', () => got[0].join() === 'a' && got[2].join() === 'b' && wild.length === 2)
	is('the wildcard has', [...wild].sort().join(), 'room.1a,room.3b')
	all.close()
	rooms[1].close()
	await until('it has left', () => moves.some(m => m.startsWith('-')))
	is('the moves', moves.join(), ['+1', '+2', '+3', '-2'].map(m => m + 'alice' + client).join())
	await new Promise(r => setTimeout(r, 8000)) // longer than a token lasts, and the sweep
	stop = true
	await sending
	await until('the live events', () => live.length === sent)
	is('live events', live.every((x, i) => x === String(i)), true)
	await writer.publish('room.3', 'c')
	await until('the end', () => got[2].join() === 'b,c')
	is('the id', push.client, client)
	is('the states', states.join(), 'connecting,open')
	is('the wildcard has', wild.length, 2)
	is('gaps', gaps.length, 0)
	if (asked < 3) console.log('the token was asked for', asked, 'times')
	// again, and one that is refused
	const again = [], errors = []
	push.subscribe('room.2', e => again.push(e.data), { after: rooms[1].lastId })
	push.subscribe('$presence.room.4', () => {}, { onError: e => errors.push(e.status) })
	await until('an error', () => errors.length === 1)
	await writer.publish('room.2', 'd')
	await until('the event', () => again.join() === 'd' && push.state === 'open')
	await writer.publish('room.1', 'e')
	await until('the other', () => got[0].join() === 'a,e')
	if (way === 'websocket') is('the id', push.client, client)
	push.close()

	// an older gateway
	const Socket = globalThis.WebSocket
	if (Socket) globalThis.WebSocket = class extends Socket {
		set onmessage(f) { this.addEventListener('message', m => f({ data: m.data.replace(/"expires_in":\d+,?/, '').replace(',}', '}') })) }
	}
	const stock = fetch
	globalThis.fetch = async (a, o) => {
		const answer = await stock(a, o)
		answer.headers.get = h => h === 'Push-Expires-In' ? null : Headers.prototype.get.call(answer.headers, h)
		return answer
	}
	const old = connect(url, { token: sign('old', 3600), transports: [way] })
	const one = [], two = []
	old.subscribe('one', e => one.push(e.data))
	await until('it is open', () => old.state === 'open' && old.client)
	const before = old.client
	old.subscribe('two', e => two.push(e.data))
	await until('it connects again', () => old.client !== before && old.state === 'open')
	await writer.publish('one', 'x')
	await writer.publish('two', 'y')
	await until('both', () => one.join() === 'x' && two.join() === 'y')
	old.close()
	writer.close()
	watch.close()
	console.log('done')
`

// Topics that open and close, and a token that expires, do not end a connection, by the two ways that
// have one. With an older gateway the client connects again.
func TestClientChanges(t *testing.T) {
	key := "a secret of 32 bytes, for a test"
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte(key), 0o600))
	runScript(t, changesScript, []string{"websocket", "sse"}, strconv.Quote(key),
		"--jwt-secret", secret, "--presence", "room.*", "--heartbeat", "2s")
}

// positionsScript is what TestClientPositions runs, as teamScript.
const positionsScript = `
	const until = async (what, f) => {
		for (let i = 0; !f(); i++) {
			if (i > 6000) { console.log('timed out:', what, JSON.stringify(globalThis.dump?.())); process.exit(1) }
			await new Promise(r => setTimeout(r, 10))
		}
	}
	const is = (what, got, want) => { if (got !== want) console.log(what, 'is', got, 'and not', want) }
	const { connect } = await import(module)
	const push = connect(url, { transports: [way] })
	const names = [[], [], [], [], []]
	const sent = n => push.publish('a', String(n))
	const zero = (await sent(0)).id
	const first = push.subscribe('a', e => {
		names[0].push(e.data)
		if (e.data === '1') second.close()
	}, { after: zero })
	const second = push.subscribe('a', e => names[1].push(e.data))
	const two = (await sent(1), await sent(2)).id
	await until('two events', () => names[0].length === 2)
	is('one that another has closed', names[1].join(), '')

	// one that goes on earlier, and one that goes on later
	push.subscribe('a', e => names[2].push(e.data), { after: zero })
	push.subscribe('a', e => names[3].push(e.data), { after: two })
	await until('what is stored', () => names[2].length === 2)
	await sent(3)
	await until('the next', () => names.every((n, i) => i === 1 || i === 4 || n.includes('3')))
	is('first', names[0].join(), '1,2,3')
	is('earlier', names[2].join(), '1,2,3')
	is('later', names[3].join(), '3')

	// one that goes on where another was closed
	const other = push.subscribe('b', () => {}, { after: zero })
	await push.publish('b', 'x')
	await until('an id', () => other.lastId !== zero)
	const id = other.lastId
	other.close()
	await push.publish('b', 'y')
	is('the id of the one that was closed', other.lastId, id)
	push.subscribe('b', e => names[4].push(e.data), { after: other.lastId })
	await until('what came between', () => names[4].length === 1)
	is('what came between', names[4][0], 'y')
	push.close()
	console.log('done')
`

// Each subscription gets what comes after its own position, once, and nothing after it was closed. A
// later one goes on where it has ended.
func TestClientPositions(t *testing.T) {
	runScript(t, positionsScript, []string{"websocket", "sse", "poll"}, "null")
}

// runScript runs a script with the client in Node.js, by each of some ways to connect, with a gateway
// of its own.
func runScript(t *testing.T, script string, ways []string, tokens string, flags ...string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("%s needs Node.js: %v", t.Name(), err)
	}
	module, err := filepath.Abs("../../js/push.js")
	must(t, err)
	for _, way := range ways {
		url, _, stop := start(t, append(flags, "--store", t.TempDir())...)
		file := filepath.Join(t.TempDir(), "test.mjs")
		head := fmt.Sprintf("const url = %q, module = %q, way = %q, tokens = %s;", url, module, way, tokens)
		must(t, os.WriteFile(file, []byte(head+script), 0o600))
		// Node.js 20 has WebSocket with this flag alone, later ones have it in any case.
		out, err := exec.CommandContext(t.Context(), node, "--experimental-websocket", "--no-warnings", file).CombinedOutput()
		if err != nil || string(out) != "done\n" {
			t.Errorf("%s: %v: %s", way, err, out)
		}
		stop()
	}
}

// Chromium agrees on compression with a gateway that has it switched on, by HTTP/1.1 and HTTP/2. It
// publishes and gets events then, and so does the client.
func TestChromiumCompression(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		want  string
	}{
		"off":      {nil, ""},
		"HTTP/1.1": {[]string{"--compression", "1"}, "permessage-deflate"},
		"HTTP/2":   {append(certificate(t), "--compression", "1"), "permessage-deflate"},
	} {
		t.Run(name, func(t *testing.T) {
			url, debug, _ := start(t, append(c.flags, "--store", t.TempDir(), "--demo")...)
			b := openTab(t, url+"/demo/", "--ignore-certificate-errors").ready()
			until(t, "the demo has left", func() bool { return conns(t, debug) == 0 })
			b.eval(`(async () => {
				long = 'Ünïcode 𝄞 '.repeat(500);
				push = await start(location.origin, { transports: ['websocket'] });
				push.subscribe('a', e => got.push('client: ' + (e.data === long)));
				socket = new WebSocket(location.origin.replace('http', 'ws') + '/socket?topic=a');
				socket.onmessage = e => {
					const m = JSON.parse(e.data);
					if ('published' in m) got.push('published');
					if ('data' in m) got.push('socket: ' + (m.data === long));
				};
			})()`)
			until(t, "both have joined", func() bool { return b.joined(debug) == 2 })
			b.is("socket.readyState", 1.0)
			b.is("socket.extensions.split(';')[0]", c.want)
			b.eval("socket.send(JSON.stringify({ ref: 1, publish: { topic: 'a', data: long } })); 1")
			b.has("published", "socket: true", "client: true")
			b.eval("push.publish('a', long).then(() => 1)")
			b.has("published", "socket: true", "client: true", "socket: true", "client: true")
		})
	}
}
