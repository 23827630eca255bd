package park

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/backendtest"
)

// request returns a request without a body.
func request(method, path string, lines ...string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(lines, ""), "\r\n") + "\r\n"
}

var hello = request("GET", "/hello")

type exchange struct {
	name  string
	steps []step
}

// one returns exchanges of one request: as the first, and as the second request on its connection.
func one(name, text string) []exchange {
	return []exchange{
		{name, []step{sends(text)}},
		{name + ", later", []step{sends(hello), answers("GET", 1), waitIdle, sends(text)}},
	}
}

// exchanges returns the table of exchanges.
func exchanges() []exchange {
	post := func(path, body string) string {
		return request("POST", path, fmt.Sprintf("Content-Length: %d", len(body))) + body
	}
	chunked := request("POST", "/echo", "Transfer-Encoding: chunked") + "3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n"
	table := slices.Concat(
		one("GET", hello),
		one("HEAD", request("HEAD", "/hello")),
		one("not found", request("GET", "/none")),
		one("OPTIONS *", request("OPTIONS", "*")),
		one("POST", post("/echo", "some body")),
		one("POST of nothing", post("/echo", "")),
		one("chunked", chunked),
		one("chunked with a trailer", request("POST", "/echo", "Transfer-Encoding: chunked", "Trailer: A")+
			"3\r\nabc\r\n0\r\nA: b\r\n\r\n"),
		one("a bad chunk", request("POST", "/echo", "Transfer-Encoding: chunked")+"zz\r\n"),
		one("an unknown coding", request("POST", "/echo", "Transfer-Encoding: rot13")),
		one("an ignored body", post("/ignore", strings.Repeat("x", 5000))),
		one("stream", request("GET", "/stream")),
		one("trailer", request("GET", "/trailer")),
		one("204", request("GET", "/empty")),
		one("304", request("GET", "/same")),
		one("close by the server", request("GET", "/close")),
		one("close by the client", request("GET", "/hello", "Connection: close")),
		one("a large answer", request("GET", "/big")),
		one("an aborted handler", request("GET", "/abort")),
		one("a short answer", request("GET", "/short")),
		one("what the handler sees", request("GET", "/conn")),
		one("an answer before the body", post("/early", "late body")),
		one("deadlines", request("GET", "/deadline")),
		one("HTTP/1.0", "GET /hello HTTP/1.0\r\n\r\n"),
		one("HTTP/1.0, keep-alive", "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
		one("HTTP/0.9", "GET /hello\r\n\r\n"),
		one("HTTP/3.0", "GET /hello HTTP/3.0\r\nHost: x\r\n\r\n"),
		one("PRI", "PRI * HTTP/2.0\r\n\r\n"),
		one("garbage", "\x00\x01\x02\x03\x04\r\n\r\n"),
		one("no method", " /hello HTTP/1.1\r\nHost: x\r\n\r\n"),
		one("no host", "GET /hello HTTP/1.1\r\n\r\n"),
		one("two hosts", request("GET", "/hello", "Host: y")),
		one("a bad host", "GET /hello HTTP/1.1\r\nHost: a b\r\n\r\n"),
		one("a bad header", request("GET", "/hello", "A B: c")),
		one("a header without colon", request("GET", "/hello", "nonsense")),
		one("two lengths", request("POST", "/echo", "Content-Length: 1", "Content-Length: 2")+"x"),
		one("a negative length", request("POST", "/echo", "Content-Length: -1")),
		one("leading lines", "\r\n\r\n"+hello),
		one("an unknown expectation", request("POST", "/echo", "Expect: miracles", "Content-Length: 0")),
		one("a head of 6,000 bytes", request("GET", "/hello", "X: "+strings.Repeat("x", 6000))),
		one("an early end of the head", "GET /hello HTTP/1.1\r\nHo"),
		one("an early end of the body", request("POST", "/echo", "Content-Length: 100")+"only this"),
		one("two at once", hello+hello),
		one("five at once", hello+post("/echo", "x")+request("HEAD", "/hello")+chunked+hello),
		one("two at once, the second bad", hello+"bad\r\n\r\n"),
		one("two at once, the second without host", hello+"GET /hello HTTP/1.1\r\n\r\n"),
		one("one and a half at once", hello+hello[:20]),
		one("one and three bytes", hello+hello[:3]),
		one("one and its first line", hello+"GET /hello HTTP/1.1\r\n"),
		one("one and an empty line", post("/echo", "x")+"\r\n"+hello),
		one("hijack", request("GET", "/hijack")+"line one\nline two\n"),
		one("upgrade", request("GET", "/upgrade", "Connection: Upgrade", "Upgrade: lines")),
	)
	for _, cut := range []int{1, 2, 3, 4, 5, 10, 21, len(hello) - 1} {
		pieces := []step{sendAndWait(hello[:cut]), sends(hello[cut:])}
		later := []step{sends(hello), answers("GET", 1), waitIdle}
		table = append(table,
			exchange{fmt.Sprintf("cut after %d", cut), pieces},
			exchange{fmt.Sprintf("cut after %d, later", cut), slices.Concat(later, pieces, []step{answers("GET", 1), waitIdle, sends(hello)})},
			exchange{fmt.Sprintf("ends after %d, later", cut), slices.Concat(later, pieces[:1])},
		)
	}
	three := []step{sends(hello), answers("GET", 1), waitIdle}
	table = append(table,
		exchange{"byte by byte", bytewise(hello)},
		exchange{"byte by byte, later", slices.Concat(three, bytewise(hello))},
		exchange{"idle many times", slices.Concat(three, three, three, three, three)},
		exchange{"the same ConnContext", []step{sends(request("GET", "/conn")), answers("GET", 1), waitIdle,
			sends(request("GET", "/conn")), answers("GET", 1), waitIdle, sends(request("GET", "/conn"))}},
		exchange{"nothing", nil},
		exchange{"nothing more", three},
		exchange{"closed while idle", slices.Concat(three, []step{closeConn})},
		exchange{"reset while idle", slices.Concat(three, []step{reset})},
		exchange{"pieces of pipelined requests", []step{sendAndWait(hello + hello[:7]), answers("GET", 1), sendAndWait(hello[7:30]),
			sendAndWait(hello[30:] + hello[:2]), answers("GET", 1), sendAndWait(hello[2:]), answers("GET", 1), waitIdle, sends(hello)}},
		exchange{"a pipelined line, and later the rest", []step{sendAndWait(hello + "GET /hello HTTP/1.1\r\n"), answers("GET", 1),
			sendAndWait("Host: x\r\n"), sendAndWait("\r\n"), answers("GET", 1), waitIdle, sends(hello)}},
		exchange{"lines", []step{sendAndWait("GET /hello HTTP/1.1\r\n"), sendAndWait("Host: x\r\n"), sendAndWait("\r\n"), answers("GET", 1), waitIdle,
			sendAndWait("GET /hello HTTP/1.1\r\n"), sendAndWait("Host: x\r\n"), sendAndWait("\r\n"), answers("GET", 1), waitIdle, sends(hello)}},
		exchange{"an end after a line, later", slices.Concat(three, []step{sendAndWait("GET /hello HTTP/1.1\r\n")})},
		exchange{"an end after two lines, later", slices.Concat(three, []step{sendAndWait("GET /hello HTTP/1.1\r\n"), sendAndWait("Host: x\r\n")})},
		exchange{"bad in two parts, later", slices.Concat(three, []step{sendAndWait("nonsense"), sends("\r\n\r\n")})},
		exchange{"an empty line after a POST, later", []step{sends(post("/echo", "x")), answers("POST", 1), waitIdle,
			sends("\r\n" + hello)}},
		exchange{"empty lines after a POST, later", []step{sends(post("/echo", "x")), answers("POST", 1), waitIdle,
			sendAndWait("\r\n\r\n"), sends(hello)}},
		exchange{"three line ends after a POST, later", []step{sends(post("/echo", "x")), answers("POST", 1), waitIdle,
			sendAndWait("\r"), sendAndWait("\n\n"), sends(hello)}},
		exchange{"an empty line after a GET, later", slices.Concat(three, []step{sends("\r\n" + hello)})},
		exchange{"an empty line after OPTIONS after a POST, later", []step{sends(post("/echo", "x")), answers("POST", 1), waitIdle,
			sends(request("OPTIONS", "*")), answers("OPTIONS", 1), waitIdle, sends("\r\n" + hello)}},
		exchange{"an empty line after POST and OPTIONS at once, later", []step{
			sends(post("/echo", "x") + request("OPTIONS", "*")), answers("POST", 1), answers("OPTIONS", 1), waitIdle,
			sends("\r\n" + hello)}},
		exchange{"continue", []step{sendAndWait(request("POST", "/echo", "Expect: 100-continue", "Content-Length: 4")),
			answers("POST", 1), sends("body"), answers("POST", 1), waitIdle, sends(hello)}},
		exchange{"continue, later", slices.Concat(three, []step{
			sendAndWait(request("POST", "/echo", "Expect: 100-continue", "Content-Length: 4")),
			answers("POST", 1), sends("body"), answers("POST", 1), waitIdle, sends(hello)})},
		exchange{"continue, not waited for, later", slices.Concat(three, []step{
			sendAndWait(request("POST", "/ignore", "Expect: 100-continue", "Content-Length: 4"))})},
		exchange{"a body in parts, later", slices.Concat(three, []step{sendAndWait(request("POST", "/echo", "Content-Length: 6")),
			sendAndWait("abc"), sends("def"), answers("POST", 1), waitIdle, sends(hello)})},
		exchange{"chunks in parts, later", slices.Concat(three, []step{sendAndWait(request("POST", "/echo", "Transfer-Encoding: chunked")),
			sendAndWait("3\r\nab"), sendAndWait("c\r\n0"), sends("\r\n\r\n"), answers("POST", 1), waitIdle, sends(hello)})},
		exchange{"hijack and exchange, later", slices.Concat(three, []step{sendAndWait(request("GET", "/hijack")), sendAndWait("a\n"), sendAndWait("b\n")})},
		exchange{"upgrade and exchange, later", slices.Concat(three, []step{
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
	for _, secure := range []bool{false, true} {
		name := "http"
		if secure {
			name = "https"
		}
		t.Run(name, func(t *testing.T) {
			backendtest.Need(t)
			stock := newExchangeServer(t, secure, false, "", 0, nil)
			rigs := map[string]*exchangeServer{
				"parks at once": newExchangeServer(t, secure, true, "", -1, nil),
				"lingers":       newExchangeServer(t, secure, true, "", time.Millisecond, nil),
			}
			for _, b := range socknotify.Backends()[1:] { // the default is tested already
				rigs[b] = newExchangeServer(t, secure, true, b, -1, nil)
			}
			if len(exchanges()) < 60 {
				t.Fatal("the table is too short")
			}
			for _, e := range exchanges() {
				t.Run(e.name, func(t *testing.T) {
					want, wantStates := stock.run(t, e.steps)
					for name, r := range rigs {
						got, states := r.run(t, e.steps)
						if got != want {
							t.Errorf("%s: got\n%q, want\n%q", name, got, want)
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
