package park

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/httpcorpus"
)

var request, hello = httpcorpus.Text, httpcorpus.Hello

type exchange struct {
	name  string
	steps []step
	first bool // nothing precedes a request of the corpus, so the connection was not parked before
}

// exchanges returns the table of exchanges: those of the corpus, and those in several steps.
func exchanges() []exchange {
	post := httpcorpus.Post
	var table []exchange
	for _, r := range httpcorpus.Requests() {
		table = append(table,
			exchange{r.Name, []step{sends(r.Text)}, true},
			exchange{name: r.Name + ", later", steps: []step{sends(hello), answers("GET", 1), waitIdle, sends(r.Text)}})
	}
	for _, cut := range []int{1, 2, 3, 4, 5, 10, 21, len(hello) - 1} {
		pieces := []step{sendAndWait(hello[:cut]), sends(hello[cut:])}
		later := []step{sends(hello), answers("GET", 1), waitIdle}
		table = append(table,
			exchange{name: fmt.Sprintf("cut after %d", cut), steps: pieces},
			exchange{name: fmt.Sprintf("cut after %d, later", cut), steps: slices.Concat(later, pieces, []step{answers("GET", 1), waitIdle, sends(hello)})},
			exchange{name: fmt.Sprintf("ends after %d, later", cut), steps: slices.Concat(later, pieces[:1])},
		)
	}
	three := []step{sends(hello), answers("GET", 1), waitIdle}
	table = append(table,
		exchange{name: "byte by byte", steps: bytewise(hello)},
		exchange{name: "byte by byte, later", steps: slices.Concat(three, bytewise(hello))},
		exchange{name: "idle many times", steps: slices.Concat(three, three, three, three, three)},
		exchange{name: "the same ConnContext", steps: []step{sends(request("GET", "/conn")), answers("GET", 1), waitIdle,
			sends(request("GET", "/conn")), answers("GET", 1), waitIdle, sends(request("GET", "/conn"))}},
		exchange{name: "nothing", steps: nil},
		exchange{name: "nothing more", steps: three},
		exchange{name: "closed while idle", steps: slices.Concat(three, []step{closeConn})},
		exchange{name: "reset while idle", steps: slices.Concat(three, []step{reset})},
		exchange{name: "pieces of pipelined requests", steps: []step{sendAndWait(hello + hello[:7]), answers("GET", 1), sendAndWait(hello[7:30]),
			sendAndWait(hello[30:] + hello[:2]), answers("GET", 1), sendAndWait(hello[2:]), answers("GET", 1), waitIdle, sends(hello)}},
		exchange{name: "a pipelined line, and later the rest", steps: []step{sendAndWait(hello + "GET /hello HTTP/1.1\r\n"), answers("GET", 1),
			sendAndWait("Host: x\r\n"), sendAndWait("\r\n"), answers("GET", 1), waitIdle, sends(hello)}},
		exchange{name: "lines", steps: []step{sendAndWait("GET /hello HTTP/1.1\r\n"), sendAndWait("Host: x\r\n"), sendAndWait("\r\n"), answers("GET", 1), waitIdle,
			sendAndWait("GET /hello HTTP/1.1\r\n"), sendAndWait("Host: x\r\n"), sendAndWait("\r\n"), answers("GET", 1), waitIdle, sends(hello)}},
		exchange{name: "an end after a line, later", steps: slices.Concat(three, []step{sendAndWait("GET /hello HTTP/1.1\r\n")})},
		exchange{name: "an end after two lines, later", steps: slices.Concat(three, []step{sendAndWait("GET /hello HTTP/1.1\r\n"), sendAndWait("Host: x\r\n")})},
		exchange{name: "bad in two parts, later", steps: slices.Concat(three, []step{sendAndWait("nonsense"), sends("\r\n\r\n")})},
		exchange{name: "an empty line after a POST, later", steps: []step{sends(post("/echo", "x")), answers("POST", 1), waitIdle,
			sends("\r\n" + hello)}},
		exchange{name: "empty lines after a POST, later", steps: []step{sends(post("/echo", "x")), answers("POST", 1), waitIdle,
			sendAndWait("\r\n\r\n"), sends(hello)}},
		exchange{name: "three line ends after a POST, later", steps: []step{sends(post("/echo", "x")), answers("POST", 1), waitIdle,
			sendAndWait("\r"), sendAndWait("\n\n"), sends(hello)}},
		exchange{name: "an empty line after a GET, later", steps: slices.Concat(three, []step{sends("\r\n" + hello)})},
		exchange{name: "an empty line after OPTIONS after a POST, later", steps: []step{sends(post("/echo", "x")), answers("POST", 1), waitIdle,
			sends(request("OPTIONS", "*")), answers("OPTIONS", 1), waitIdle, sends("\r\n" + hello)}},
		exchange{name: "an empty line after POST and OPTIONS at once, later", steps: []step{
			sends(post("/echo", "x") + request("OPTIONS", "*")), answers("POST", 1), answers("OPTIONS", 1), waitIdle,
			sends("\r\n" + hello)}},
		exchange{name: "continue", steps: []step{sendAndWait(request("POST", "/echo", "Expect: 100-continue", "Content-Length: 4")),
			answers("POST", 1), sends("body"), answers("POST", 1), waitIdle, sends(hello)}},
		exchange{name: "continue, later", steps: slices.Concat(three, []step{
			sendAndWait(request("POST", "/echo", "Expect: 100-continue", "Content-Length: 4")),
			answers("POST", 1), sends("body"), answers("POST", 1), waitIdle, sends(hello)})},
		exchange{name: "continue, not waited for, later", steps: slices.Concat(three, []step{
			sendAndWait(request("POST", "/ignore", "Expect: 100-continue", "Content-Length: 4"))})},
		exchange{name: "continue, refused, then a request", steps: []step{
			sendAndWait(request("POST", "/ignore", "Expect: 100-continue", "Content-Length: 4")), answers("POST", 1), sends(hello)}},
		exchange{name: "continue, refused, then a request, later", steps: slices.Concat(three, []step{
			sendAndWait(request("POST", "/ignore", "Expect: 100-continue", "Transfer-Encoding: chunked")), answers("POST", 1), sends(hello)})},
		exchange{name: "a body in parts, later", steps: slices.Concat(three, []step{sendAndWait(request("POST", "/echo", "Content-Length: 6")),
			sendAndWait("abc"), sends("def"), answers("POST", 1), waitIdle, sends(hello)})},
		exchange{name: "chunks in parts, later", steps: slices.Concat(three, []step{sendAndWait(request("POST", "/echo", "Transfer-Encoding: chunked")),
			sendAndWait("3\r\nab"), sendAndWait("c\r\n0"), sends("\r\n\r\n"), answers("POST", 1), waitIdle, sends(hello)})},
		exchange{name: "hijack and exchange, later", steps: slices.Concat(three, []step{sendAndWait(request("GET", "/hijack")), sendAndWait("a\n"), sendAndWait("b\n")})},
		exchange{name: "upgrade and exchange, later", steps: slices.Concat(three, []step{
			sendAndWait(request("GET", "/upgrade", "Connection: Upgrade", "Upgrade: lines")), sendAndWait("a\n"), sendAndWait("b\n")})},
	)
	return table
}

func bytewise(text string) []step {
	var steps []step
	for i := range len(text) {
		steps = append(steps, sendAndWait(text[i:i+1]))
	}
	return steps
}

// An HTTPServer sends the same bytes and reports the same states as an http.Server.
func TestHTTPExchanges(t *testing.T) {
	t.Parallel() // it waits
	for _, secure := range []bool{false, true} {
		name := "http"
		if secure {
			name = "https"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel() // net/http waits before it closes
			backendtest.Need(t)
			stock := newExchangeServer(t, secure, false, "", 0, nil)
			rigs := map[string]*exchangeServer{
				"parks at once": newExchangeServer(t, secure, true, "", -1, nil),
				"lingers":       newExchangeServer(t, secure, true, "", time.Millisecond, nil),
			}
			if !secure {
				for _, b := range socknotify.Backends()[1:] { // the default is tested already
					rigs[b] = newExchangeServer(t, secure, true, b, -1, nil)
				}
			}
			for _, e := range exchanges() {
				t.Run(e.name, func(t *testing.T) {
					want, wantStates := stock.run(t, e.steps)
					for name, r := range rigs {
						if e.first && name != "parks at once" {
							continue
						}
						got, states := r.run(t, e.steps)
						if got != want {
							t.Errorf("%s: %s", name, httpcorpus.Diff(got, want))
						}
						if !slices.Equal(states, wantStates) {
							t.Errorf("%s: %v, want %v", name, states, wantStates)
						}
					}
				})
			}
		})
	}
}
