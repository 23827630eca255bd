package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/socknotify/socknotify/internal/test/await"
)

// A tab is a page in Chromium, driven by its debugging protocol.
type tab struct {
	t       *testing.T
	browser string // the address of its debugging protocol
	id      string
	conn    net.Conn
	n       int
	ended   <-chan struct{} // closed when the browser has ended
}

// openTab starts Chromium with one page. The test is skipped where Chromium is not installed.
func openTab(t *testing.T, page string, flags ...string) *tab {
	t.Helper()
	binary, err := exec.LookPath("chromium")
	if err != nil {
		t.Skipf("%s needs Chromium: %v", t.Name(), err)
	}
	profile, err := os.MkdirTemp("", "chromium")
	must(t, err)
	c := exec.Command(binary, append(flags, "--headless=new", "--no-sandbox", "--disable-gpu",
		"--no-first-run", "--disable-sync", "--disable-background-networking",
		"--disable-component-update", "--disable-quic", "--disable-dev-shm-usage",
		"--remote-debugging-port=0", "--user-data-dir="+profile, "about:blank")...)
	stderr, err := c.StderrPipe()
	must(t, err)
	must(t, c.Start())
	lines := bufio.NewScanner(stderr)
	drained := make(chan struct{})
	t.Cleanup(func() {
		c.Process.Kill()
		<-drained
		c.Wait()
		// Its other processes end later.
		until(t, "the browser's folder is removed", func() bool { return os.RemoveAll(profile) == nil })
	})
	var debugger string
	for debugger == "" && lines.Scan() {
		_, debugger, _ = strings.Cut(lines.Text(), "DevTools listening on ")
	}
	go func() {
		io.Copy(io.Discard, stderr)
		close(drained)
	}()
	if debugger == "" {
		t.Fatal("Chromium has ended")
	}
	at, err := url.Parse(debugger)
	must(t, err)
	b := &tab{t: t, browser: at.Host, ended: drained}
	return b.another(page)
}

// another opens a page in another tab of the same browser. Page.navigate returns an error if the page
// cannot be opened. A tab that is created with its page returns none, and one has stayed empty.
func (b *tab) another(page string) *tab {
	b.t.Helper()
	code, body := ask(b.t, "PUT", "http://"+b.browser+"/json/new", "")
	var target struct{ ID, WebSocketDebuggerURL string }
	if err := json.Unmarshal([]byte(body), &target); code != http.StatusOK || err != nil {
		b.t.Fatal(code, err, body)
	}
	conn, _, _, err := ws.Dial(context.Background(), target.WebSocketDebuggerURL)
	must(b.t, err)
	b.t.Cleanup(func() { conn.Close() })
	opened := &tab{b.t, b.browser, target.ID, conn, 0, b.ended}
	var navigated struct{ ErrorText string }
	must(b.t, opened.call("Page.navigate", map[string]any{"url": page}, &navigated))
	if navigated.ErrorText != "" {
		b.t.Fatalf("%s: %s", page, navigated.ErrorText)
	}
	return opened
}

// quit ends the browser, and waits until it has written its files.
func (b *tab) quit() {
	b.t.Helper()
	code, body := ask(b.t, "GET", "http://"+b.browser+"/json/version", "")
	var browser struct{ WebSocketDebuggerURL string }
	if err := json.Unmarshal([]byte(body), &browser); code != http.StatusOK || err != nil {
		b.t.Fatal(code, err, body)
	}
	conn, _, _, err := ws.Dial(context.Background(), browser.WebSocketDebuggerURL)
	must(b.t, err)
	defer conn.Close()
	must(b.t, wsutil.WriteClientText(conn, []byte(`{"id":1,"method":"Browser.close"}`)))
	await.Receive(b.t, "the end of the browser", b.ended)
}

// close closes the tab.
func (b *tab) close() {
	b.t.Helper()
	if code, body := ask(b.t, "GET", "http://"+b.browser+"/json/close/"+b.id, ""); code != http.StatusOK {
		b.t.Fatal(code, body)
	}
}

// eval evaluates an expression in the page, and returns its value. It returns nil if the tab has
// opened another page before the end.
func (b *tab) eval(expression string) any {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	const shorthand = "if (typeof $ === 'undefined') globalThis.$ = id => document.getElementById(id);"
	if b.call("Runtime.evaluate", map[string]any{"expression": shorthand + expression,
		"returnByValue": true, "awaitPromise": true}, &answer) != nil {
		return nil
	}
	if e := answer.ExceptionDetails; e != nil {
		b.t.Fatalf("%s: %s", expression, e)
	}
	return answer.Result.Value
}

// call calls a method of the DevTools protocol. It returns the error that the browser answers.
func (b *tab) call(method string, params map[string]any, result any) error {
	b.t.Helper()
	b.n++
	request, err := json.Marshal(map[string]any{"id": b.n, "method": method, "params": params})
	must(b.t, err)
	b.conn.SetDeadline(time.Now().Add(2 * time.Minute))
	must(b.t, wsutil.WriteClientText(b.conn, request))
	for {
		text, err := wsutil.ReadServerText(b.conn)
		must(b.t, err)
		var answer struct {
			ID            int
			Result, Error json.RawMessage
		}
		must(b.t, json.Unmarshal(text, &answer))
		if answer.ID != b.n {
			continue
		}
		if answer.Error != nil {
			return fmt.Errorf("%s: %s", method, answer.Error)
		}
		must(b.t, json.Unmarshal(answer.Result, result))
		return nil
	}
}

// shown waits until each of the page's subscribers shows these events, and no other.
func (b *tab) shown(subscribers int, events ...string) {
	b.t.Helper()
	want := strings.Repeat(strings.Join(events, "|")+"\n", subscribers)
	var got any
	defer func() {
		if b.t.Failed() {
			b.t.Logf("the page shows %q, want %q", got, want)
		}
	}()
	until(b.t, "all subscribers show the events", func() bool {
		got = b.eval(`Array.from(document.querySelectorAll('.events'),
			e => Array.from(e.children, li => li.textContent).join('|') + '\n').join('')`)
		return got == want
	})
}

func (b *tab) connected(subscribers int) {
	b.t.Helper()
	until(b.t, "all subscribers are connected", func() bool {
		return b.eval(`Array.from(document.querySelectorAll('.state')).
			filter(e => e.textContent === 'open').length`) == float64(subscribers)
	})
}

// publish fills in the form and submits it, and waits until the event is acknowledged.
func (b *tab) publish(topic, text string) {
	b.t.Helper()
	b.eval(fmt.Sprintf(`$('published').textContent = ''; $('topic').value = %q; $('text').value = %q;
		document.querySelector('#publish button').click()`, topic, text))
	until(b.t, "the event is acknowledged", func() bool {
		id, _ := b.eval(`$('published').textContent`).(string)
		epoch, _, ok := strings.Cut(id, "-")
		return ok && !strings.ContainsAny(epoch, " :")
	})
}

// The demo page publishes, and shows the events to its subscribers of each kind.
func TestDemo(t *testing.T) {
	url, debug, _ := start(t, "--store", t.TempDir(), "--demo")
	b := openTab(t, url+"/demo/")
	b.connected(3)
	until(t, "all have joined", func() bool { return b.joined(debug) == 3 })
	b.publish("demo.one", "hello")
	b.shown(3, "demo.one hello")
	b.eval(`$('filter').value = 'demo.two'; $('subscribe').querySelector('button').click()`)
	b.connected(4)
	until(t, "the fourth has joined", func() bool { return b.joined(debug) == 4 })
	b.eval(`document.querySelector('.close').click()`)
	b.publish("demo.two", "<b>text</b>")
	until(t, "the subscribers show it", func() bool {
		return b.eval(`Array.from(document.querySelectorAll('.events'), e => e.lastElementChild?.textContent).join()`) ==
			strings.TrimSuffix(strings.Repeat("demo.two <b>text</b>,", 3), ",")
	})

	status := openTab(t, debug+"/")
	until(t, "the status page shows the topics", func() bool {
		text, _ := status.eval(`document.body?.innerText`).(string) // none while it is loaded
		return strings.Contains(text, "demo.>") && strings.Contains(text, "demo.two") && strings.Contains(text, "ready")
	})
}

// joined is the number of clients of a node, by its status page.
func (b *tab) joined(debug string) int {
	var s status
	_, body := ask(b.t, "GET", debug+"/status", "")
	must(b.t, json.Unmarshal([]byte(body), &s))
	n := 0
	for _, t := range s.Busiest {
		n += t.Clients
	}
	return n
}

// The page's node is killed. Its subscribers go on at another node of the cluster, and the page publishes there.
func TestDemoOfCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three processes")
	}
	members, nodes := startMembers(t, "--demo", "--origins", "*")
	b := openTab(t, nodes[0]+"/demo/#nodes="+strings.Join(nodes, ","))
	b.connected(3)
	until(t, "all have joined", func() bool {
		n := 0
		for _, m := range members {
			n += b.joined(m.debug)
		}
		return n == 3
	})
	b.publish("demo.one", "before")
	b.shown(3, "demo.one before")
	members[0].kill()
	b.publish("demo.one", "after")
	b.shown(3, "demo.one before", "demo.one after")
	b.connected(3)
	var s status
	until(t, "the status shows two members with the events", func() bool {
		_, body := ask(t, "GET", members[1].debug+"/status", "")
		must(t, json.Unmarshal([]byte(body), &s))
		current := 0
		for _, m := range s.Members {
			if m.Current && !m.Offline {
				current++
			}
		}
		return len(s.Members) == 3 && current == 2
	})
}
