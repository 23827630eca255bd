package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The number of shards of a stopped node and of a running NATS is changed, and clients go on with their
// ids. A node with another number is refused, and told what to do.
func TestReshard(t *testing.T) {
	store := t.TempDir()
	url, _, stop := start(t, "--store", store)
	next, end := events(t, url, "topic=news", "")
	first := next("id: ")
	end()
	if code, body := ask(t, "POST", url+"/publish?topic=news", "hello"); code != http.StatusOK {
		t.Fatal(code, body)
	}
	stop()
	var out bytes.Buffer
	refused := []string{"--addr", "127.0.0.1:0", "--name", "one", "--store", store, "--shards", "4"}
	if status := command(t.Context(), refused, io.Discard, &out); status != 1 ||
		!strings.Contains(out.String(), "Shards is 4, and the store has 1") || !strings.Contains(out.String(), "reshard") {
		t.Errorf("another number: status %d: %s", status, out.String())
	}
	for i, number := range []string{"4", "2"} {
		out.Reset()
		if status := command(t.Context(), []string{"reshard", "--store", store, number}, io.Discard, &out); status != 0 {
			t.Fatalf("reshard %s: status %d: %s", number, status, out.String())
		}
		url, _, stop = start(t, "--store", store, "--shards", number)
		if code, body := ask(t, "POST", url+"/publish?topic=news", "after "+number); code != http.StatusOK {
			t.Fatal(code, body)
		}
		next, end = events(t, url, "topic=news", first)
		for _, want := range []string{"hello", "after 4", "after 2"}[:i+2] {
			if got := next("data: "); got != want {
				t.Errorf("%s shards: got %q, want %q", number, got, want)
			}
		}
		end()
		stop()
	}
}

// shardScript is what TestClientOverShards runs: url, module and way are set before.
const shardScript = `
	const until = async (what, f) => {
		for (let i = 0; !f(); i++) {
			if (i > 1500) { console.log('timed out:', what, JSON.stringify(got)); process.exit(1) }
			await new Promise(r => setTimeout(r, 10))
		}
	}
	const { connect } = await import(module)
	const topics = Array.from({ length: 12 }, (_, i) => 't.' + i)
	const writer = connect(url), push = connect(url, { transports: [way] })
	const got = { all: [], one: [], late: [], last: [] }
	const all = push.subscribe('t.*', e => got.all.push(e.data), { after: 'first' })
	const one = push.subscribe('t.1', e => got.one.push(e.data), { after: 'first' })
	const round = async n => { for (const t of topics) await writer.publish(t, t + ' ' + n) }
	await round(1)
	await until('a round', () => got.all.length === 12 && got.one.length === 1)
	one.close() // what it has got for all does not come again
	push.subscribe('t.2', e => got.late.push(e.data))
	await round(2)
	await until('another round', () => got.all.length === 24 && got.late.length === 1)
	const { lastId } = all
	push.close()
	await round(3)
	const again = connect(url, { transports: [way] })
	again.subscribe('t.*', e => got.all.push(e.data), { after: lastId })
	const other = connect(url, { transports: [way] })
	other.subscribe('t.>', e => got.last.push(e.data), { last: 3 })
	await until('the last', () => got.last.length === 3)
	await round(4)
	await until('the rest', () => got.all.length === 48 && got.last.length === 15)
	for (const t of topics) {
		const of = got.all.filter(e => e.startsWith(t + ' ')).join()
		if (of !== [1, 2, 3, 4].map(n => t + ' ' + n).join()) console.log(t, 'has', of)
	}
	again.close()
	other.close()
	writer.close()
	console.log('done')
`

// Clients in Node.js that subscribe to wildcards over four shards, and to topics that these have too, get
// each event once, whenever they come and go.
func TestClientOverShards(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("%s needs Node.js: %v", t.Name(), err)
	}
	module, err := filepath.Abs("../../js/push.js")
	must(t, err)
	for _, way := range []string{"sse", "poll"} {
		t.Run(way, func(t *testing.T) {
			url, _, _ := start(t, "--store", t.TempDir(), "--shards", "4")
			script := filepath.Join(t.TempDir(), "test.mjs")
			must(t, os.WriteFile(script, []byte(fmt.Sprintf("const url = %q, module = %q, way = %q\n", url, module, way)+shardScript), 0o600))
			out, err := exec.CommandContext(t.Context(), node, script).CombinedOutput()
			if err != nil || string(out) != "done\n" {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
