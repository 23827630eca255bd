package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// lookNode returns the path of Node.js, or skips the test.
func lookNode(t *testing.T) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("%s needs Node.js: %v", t.Name(), err)
	}
	return node
}

// withoutSocketScript is what TestClientWithoutWebSocket runs, after constants for url and module.
const withoutSocketScript = `
	const until = async (what, f) => {
		for (let i = 0; !f(); i++) {
			if (i > 6000) { console.log('timed out:', what); process.exit(1) }
			await new Promise(r => setTimeout(r, 10))
		}
	}
	const Socket = globalThis.WebSocket // with a flag, or in newer versions
	if (!Socket) { console.log('no WebSocket to take away'); process.exit(1) }
	delete globalThis.WebSocket
	const { connect } = await import(module)

	// alone: an error, at once
	let error = null
	try { connect(url, { transports: ['websocket'] }) } catch (e) { error = e }
	if (!(error instanceof TypeError) || !/option WebSocket/.test(error.message)) console.log('the error is', error)

	// with others: they are tried, and it is not
	const states = [], got = []
	const rest = connect(url)
	rest.onState = s => states.push(s)
	rest.subscribe('a', e => got.push(e.data))
	await until('it is open', () => rest.state === 'open')
	await rest.publish('a', '1')
	await until('an event', () => got.length === 1)
	rest.close()
	if (states.join() !== 'connecting,open,closed') console.log('the states are', states.join())

	// with a class of its own
	let made = 0
	class Own extends Socket { constructor(...args) { super(...args); made++ } }
	const classes = { global: Own }
	try { classes.ws = (await import('node:module')).createRequire('/')('/usr/share/nodejs/ws') } catch {} // Debian's node-ws
	for (const [name, WebSocket] of Object.entries(classes)) {
		let posts = 0
		const stock = globalThis.fetch
		globalThis.fetch = (...args) => { posts++; return stock(...args) }
		const push = connect(url, { transports: ['websocket'], WebSocket })
		const events = []
		push.subscribe('a', e => events.push(e.data), { after: 'first' })
		await until(name + ' has what is stored', () => events.length >= 1 && push.state === 'open')
		const { id } = await push.publish('a', name)
		await until(name + ' has its own', () => events.at(-1) === name)
		if (!id || posts) console.log(name, 'has published', id, 'by', posts, 'requests')
		const other = push.subscribe('b', () => {})
		await until(name + ' has another topic', () => other.lastId)
		push.close()
		globalThis.fetch = stock
	}
	if (made !== 1) console.log('the class was used', made, 'times')
	console.log('done', Object.keys(classes).join())
	process.exit(0) // ws waits for the end of a WebSocket for half a minute
`

// Where there is no WebSocket the client says so at once if it was to use nothing else, and uses the
// others otherwise. A program may give it a class of WebSockets.
func TestClientWithoutWebSocket(t *testing.T) {
	node := lookNode(t)
	module, err := filepath.Abs("../../js/push.js")
	must(t, err)
	url, _, _ := start(t, "--store", t.TempDir())
	file := filepath.Join(t.TempDir(), "test.mjs")
	head := fmt.Sprintf("const url = %q, module = %q;", url, module)
	must(t, os.WriteFile(file, []byte(head+withoutSocketScript), 0o600))
	out, err := exec.CommandContext(t.Context(), node, "--experimental-websocket", "--no-warnings", file).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "done global") {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.Contains(string(out), "ws") {
		t.Log("the package ws is not installed: tried with a class of Node.js's own alone")
	}
}

// packageScripts use the package as programs do, after the constants url and way: as a module, and by
// require.
var packageScripts = map[string]string{
	"test.mjs": `
	import { connect, matches, RefusedError } from 'socknotify-push'
	const got = [], push = connect(url, { transports: [way] })
	if (!matches('a.*', 'a.b') || !(RefusedError.prototype instanceof Error)) throw new Error('exports')
	const done = new Promise(resolve => push.subscribe('a.*', e => { got.push(e.data); if (got.length === 2) resolve() }, { after: 'first' }))
	await push.publish('a.1', '1')
	await push.publish('a.2', '2')
	await done
	push.close()
	console.log(got.join())
`,
	"test.cjs": `
	const { connect } = require('socknotify-push')
	const push = connect(url, { transports: [way] })
	push.subscribe('a.1', e => {
		push.close()
		console.log(e.data + ',2')
	}, { after: 'first' })
`,
}

// npm makes a package of the client, which installs in an empty folder without a registry, and works by
// each of the ways to connect. It has the file that the gateway serves, which other tests run in
// Chromium.
func TestPackage(t *testing.T) {
	node := lookNode(t)
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skipf("%s needs npm: %v", t.Name(), err)
	}
	home, packed, project := t.TempDir(), t.TempDir(), t.TempDir()
	run := func(dir, name string, args ...string) []byte {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "HOME="+home, "npm_config_cache="+home, "npm_config_update_notifier=false")
		var stderr bytes.Buffer
		c.Stderr = &stderr
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s %q: %v: %s%s", name, args, err, out, stderr.Bytes())
		}
		return out
	}
	var about []struct {
		Filename string
		Files    []struct{ Path string }
	}
	must(t, json.Unmarshal(run("../../js", npm, "pack", "--json", "--pack-destination", packed), &about))
	var files []string
	for _, f := range about[0].Files {
		files = append(files, f.Path)
	}
	slices.Sort(files)
	if want := []string{"LICENSE", "README.md", "package.json", "push.d.ts", "push.js"}; !slices.Equal(files, want) {
		t.Errorf("the package has %q, want %q", files, want)
	}
	run(project, npm, "install", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", filepath.Join(packed, about[0].Filename))
	installed := filepath.Join(project, "node_modules", "socknotify-push")
	same := func(what string, b []byte, file string) {
		t.Helper()
		if !bytes.Equal(b, must1(os.ReadFile(file))) {
			t.Errorf("%s is not %s", what, file)
		}
	}
	same("the license", must1(os.ReadFile(filepath.Join(installed, "LICENSE"))), "../../../LICENSE")
	same("the description of types", must1(os.ReadFile(filepath.Join(installed, "push.d.ts"))), "../../js/push.d.ts")
	url, _, _ := start(t, "--store", t.TempDir())
	code, served := ask(t, "GET", url+"/push.js", "")
	if code != http.StatusOK {
		t.Fatal(code)
	}
	same("what the gateway serves", []byte(served), filepath.Join(installed, "push.js"))
	requires := string(run(project, node, "-p", "!!process.features.require_module")) == "true\n"
	for _, way := range []string{"websocket", "sse", "poll"} {
		url, _, stop := start(t, "--store", t.TempDir())
		for _, name := range []string{"test.mjs", "test.cjs"} {
			if name == "test.cjs" && !requires {
				t.Logf("%s was left out: this Node.js cannot require a module", name)
				continue
			}
			text := packageScripts[name]
			head := fmt.Sprintf("const url = %q, way = %q;", url, way)
			must(t, os.WriteFile(filepath.Join(project, name), []byte(head+text), 0o600))
			if out := run(project, node, "--experimental-websocket", "--no-warnings", name); string(out) != "1,2\n" {
				t.Errorf("%s, %s: %q", way, name, out)
			}
		}
		stop()
	}
}
