// Package httpcorpus has HTTP/1 requests, valid and broken, and a handler that answers them with what it has received.
// Tests compare the bytes that two servers answer.
package httpcorpus

import (
	"fmt"
	"regexp"
	"strings"
)

// A Request is what a client sends: a request, several, or something else.
type Request struct {
	Name, Text string
	Hijacks    bool // the handler takes the connection over
}

// Text returns a request without a body.
func Text(method, path string, lines ...string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(lines, ""), "\r\n") + "\r\n"
}

// Post returns a request with a body.
func Post(path, body string) string {
	return Text("POST", path, fmt.Sprintf("Content-Length: %d", len(body))) + body
}

// Chunked returns a request whose body is in the chunked coding.
func Chunked(path, chunks string, lines ...string) string {
	return Text("POST", path, append(lines, "Transfer-Encoding: chunked")...) + chunks
}

// Hello is a request whose answer ends with HelloEnd.
var Hello = Text("GET", "/hello")

// HelloEnd is the end of the answer to Hello.
const HelloEnd = "\r\n\r\nhello\n"

var dates = regexp.MustCompile(`(?m)^Date: .*\r$`)

// MaskDates replaces the dates in an answer.
func MaskDates(answer string) string { return dates.ReplaceAllString(answer, "Date: then\r") }

// Diff describes where two answers differ.
func Diff(got, want string) string {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	part := func(s string) string { return s[max(0, at-40):min(len(s), at+200)] }
	return fmt.Sprintf("byte %d differs: got …%q…, %d bytes, want …%q…, %d bytes", at, part(got), len(got), part(want), len(want))
}

// paths are those of the handler at which every method is answered in the same way each time, except for those that
// hijack.
var paths = []string{"/hello", "/dump", "/echo", "/ignore", "/stream", "/trailer", "/empty", "/same", "/close", "/big", "/abort",
	"/short", "/conn", "/early", "/deadline", "/none"}

// Requests returns the corpus. Names and texts are distinct.
func Requests() []Request {
	var all []Request
	add := func(name, text string) { all = append(all, Request{Name: name, Text: text}) }
	each := func(family string, parts []string, text func(part string) string) {
		for _, p := range parts {
			name := fmt.Sprintf("%q", p)
			if len(name) > 40 {
				name = fmt.Sprintf("%s… of %d bytes", name[:30], len(p))
			}
			add(family+" "+name, text(p))
		}
	}
	hijacks := func(name, text string) { all = append(all, Request{name, text, true}) }

	for _, p := range paths {
		add("GET "+p, Text("GET", p))
		add("HEAD "+p, Text("HEAD", p))
		add("POST "+p, Post(p, "some body"))
		if p != "/big" { // what the client sends after it, such as its end of TLS, may reset the connection before it is sent
			add("HTTP/1.0 "+p, "GET "+p+" HTTP/1.0\r\n\r\n")
		}
		add("HTTP/1.0, keep-alive "+p, "GET "+p+" HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
		add("two of "+p, Text("GET", p)+Post(p, "x"))
	}
	each("method", []string{"PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "M-SEARCH", "get", "G", "123", "X!#$",
		"G(T", "GET:", "G\x00T", "GÉT", strings.Repeat("M", 300)},
		func(m string) string { return Text(m, "/dump") })
	each("target", []string{"/", "/?a=b", "/dump?a=b&c", "/dump?", "/dump?a=%zz", "/dump%20x", "/%zz", "/%", "//dump", "/a/../dump", "/dump/",
		"/dump;x=y", "/dump#frag", "http://x/dump", "http://y/dump", "https://x:443/dump?q", "http://", "http:///dump", "ftp://x/y", "x:80",
		"dump", "*", "?", "\x7f", "/\x01", "/é", "/\xff", "/a|b", "/" + strings.Repeat("a", 3000)},
		func(target string) string { return Text("GET", target) })
	add("OPTIONS *", Text("OPTIONS", "*"))
	add("CONNECT an authority", Text("CONNECT", "x:80"))
	add("CONNECT a bad authority", Text("CONNECT", "x:80/y"))
	each("version", []string{"HTTP/0.9", "HTTP/1.2", "HTTP/1.9", "HTTP/2.0", "HTTP/3.0", "HTTP/1", "HTTP/1.", "HTTP/.1", "HTTP/1.10",
		"HTTP/01.1", "HTTP/11", "http/1.1", "HTTPS/1.1", "HTTP/-1.1", "HTTP/1,1", "HTTP/ 1.1", "HTTP/1.1 ", "HTTP/1.1\t", "HTTP", "1.1"},
		func(v string) string { return "GET /dump " + v + "\r\nHost: x\r\n\r\n" })
	each("request line", []string{"GET", "GET ", "GET /dump", "GET /dump ", "GET  /dump HTTP/1.1", "GET /dump  HTTP/1.1",
		"GET\t/dump\tHTTP/1.1", "\tGET /dump HTTP/1.1", " /dump HTTP/1.1", "GET /a b HTTP/1.1", "GET /dump HTTP/1.1 extra", " ", ":", "\x00",
		"\x16\x03\x01\x00\x05", "SSH-2.0-x", "Host: x"},
		func(line string) string { return line + "\r\nHost: x\r\n\r\n" })
	each("garbage", []string{"\x00\x01\x02\x03\x04\r\n\r\n", "bad\r\n\r\n", "\r\n\r\n", "\n\n", "\r", "\r\r\r\r", "    ", "GET", "PRI * HTTP/2.0\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\xff\xfe\xfd\xfc", strings.Repeat("x", 5000) + "\r\n\r\n"},
		func(text string) string { return text })
	each("host", []string{"Host:", "Host: x:80", "Host: x:", "Host: :80", "Host: x:y", "Host: [::1]", "Host: [::1]:80", "Host: [::1", "Host: a_b",
		"Host: a b", "Host: a/b", "Host: a,b", "Host: x\x00", "Host: é", "Host: %41", "host: x", "HOST:x", "Host: x\r\nHost: x", "Host: x\r\nHost: y",
		"Hos: x", "Host: " + strings.Repeat("h", 300)},
		func(line string) string { return "GET /dump HTTP/1.1\r\n" + line + "\r\n\r\n" })
	add("no host", "GET /dump HTTP/1.1\r\n\r\n")
	add("no host, HTTP/1.0, POST", "POST /dump HTTP/1.0\r\nContent-Length: 1\r\n\r\nx")
	each("line", []string{"A:b", "A:", "A: ", "A:  b  ", "A:\tb\t", "a: b\r\nA: c", "A: b\r\n c", "A: b\r\n\tc", "A: b\r\n \r\n d", " A: b", "\tA: b", ":", ": b",
		"A B: c", "A : b", "A\t: b", "nonsense", "A\x00: b", "A\xff: b", "É: b", "A(: b", "\"A\": b", "A: \x00", "A: \x01", "A: \x7f", "A: é", "A: \xff",
		"A: b\rC: d", "A: b\nC: d", "A: b\n C: d", "\r", "A: b\r", "X: " + strings.Repeat("x", 6000), strings.Repeat("N", 300) + ": n",
		strings.TrimSuffix(strings.Repeat("A: b\r\n", 200), "\r\n"), "Cookie: a=b; c", "Date: now", "Content-Type: text/plain; a=b", "Trailer: A",
		"Content-Encoding: gzip", "Range: bytes=0-1", "If-Modified-Since: nonsense", "Authorization: Basic eDp5"},
		func(line string) string { return Text("GET", "/dump", line) })
	each("connection", []string{"Connection: close", "Connection: keep-alive", "Connection: Close", "Connection: x, close", "Connection: closed",
		"Connection: keep-alive\r\nConnection: close", "Connection: upgrade", "Connection:", "Connection: ,", "Keep-Alive: timeout=5",
		"Proxy-Connection: close", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==",
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__"},
		func(line string) string { return Text("GET", "/dump", line) })
	each("connection, HTTP/1.0,", []string{"close", "Keep-Alive", "keep-alive, close", "upgrade"},
		func(v string) string {
			return "POST /dump HTTP/1.0\r\nConnection: " + v + "\r\nContent-Length: 1\r\n\r\nx"
		})
	each("length", []string{"0", "4", "04", " 4 ", "+4", "-4", "-0", "4, 4", "4,5", "4 4", "0x4", "4.0", "4e0", "four", "", "\t", "3", "5", "9223372036854775807",
		"9223372036854775808", "99999999999999999999999", "4\r\nContent-Length: 4", "4\r\nContent-Length: 5", "4\x00"},
		func(v string) string { return Text("POST", "/dump", "Content-Length: "+v) + "four" })
	each("length, with", []string{"GET", "HEAD", "DELETE", "OPTIONS", "CONNECT"},
		func(m string) string { return Text(m, "/dump", "Content-Length: 4") + "four" })
	each("coding", []string{"chunked", "Chunked", "CHUNKED", " chunked ", "chunked, chunked", "gzip, chunked", "chunked, gzip", "identity", "gzip", "rot13", "",
		"xchunked", "chunked;q=1", "\x0bchunked", "chunked\r\nTransfer-Encoding: chunked", "identity\r\nTransfer-Encoding: chunked",
		"chunked\r\nContent-Length: 3", "chunked\r\nContent-Length: -3", "rot13\r\nContent-Length: 3"},
		func(v string) string {
			return Text("POST", "/dump", "Transfer-Encoding: "+v) + "3\r\nabc\r\n0\r\n\r\n"
		})
	add("coding, HTTP/1.0", "POST /dump HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
	add("coding, GET", Text("GET", "/dump", "Transfer-Encoding: chunked")+"3\r\nabc\r\n0\r\n\r\n")
	each("chunks", []string{"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n", "0\r\n\r\n", "0000\r\n\r\n", "00a\r\n0123456789\r\n0\r\n\r\n", "A\r\n0123456789\r\n0\r\n\r\n",
		"3 \r\nabc\r\n0\r\n\r\n", " 3\r\nabc\r\n0\r\n\r\n", "3;\r\nabc\r\n0\r\n\r\n", "3;x=\"y\"\r\nabc\r\n0\r\n\r\n", "3;" + strings.Repeat("x", 300) + "\r\nabc\r\n0\r\n\r\n",
		"3\nabc\n0\n\n", "3\r\nabc\n0\r\n\r\n", "3\rabc\r\n0\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", "3\r\nab\r\n0\r\n\r\n", "3\r\nabc0\r\n\r\n", "zz\r\n", "-1\r\n", "0x3\r\nabc\r\n0\r\n\r\n",
		"\r\n", ";\r\n", "\x00\r\n", "fffffffffffffffff\r\n", "10000000000000000\r\n", "7fffffffffffffff\r\nabc", "3\r\nab", "3\r\nabc", "3\r\nabc\r\n", "3\r\nabc\r\n0", "3\r\nabc\r\n0\r\n",
		strings.Repeat("1\r\nx\r\n", 40) + "0\r\n\r\n", "1;" + strings.Repeat("x", 5000) + "\r\nx\r\n0\r\n\r\n"},
		func(chunks string) string { return Chunked("/dump", chunks) })
	each("trailer", []string{"A: b\r\n", "B: c\r\n", "A: b\r\nA: c\r\n", "nonsense\r\n", "A: b\r\n c\r\n", "Content-Length: 3\r\n", "Host: y\r\n", ": b\r\n", "A b: c\r\n", "A: \x00\r\n"},
		func(trailer string) string {
			return Chunked("/dump", "3\r\nabc\r\n0\r\n"+trailer+"\r\n", "Trailer: A")
		})
	each("trailer named", []string{"Content-Length", "Transfer-Encoding", "Trailer", "", "A, B", "A\r\nTrailer: B"},
		func(name string) string {
			return Chunked("/dump", "0\r\nA: b\r\n\r\n", "Trailer: "+name)
		})
	each("expect", []string{"100-continue", "100-Continue", "100-continue, x", "miracles", ""},
		func(v string) string {
			return Text("POST", "/dump", "Expect: "+v, "Content-Length: 4") + "body"
		})
	add("expect, no body", Text("POST", "/dump", "Expect: 100-continue", "Content-Length: 0"))
	add("expect, chunked", Chunked("/dump", "4\r\nbody\r\n0\r\n\r\n", "Expect: 100-continue"))
	add("expect, ignored", Text("POST", "/ignore", "Expect: 100-continue", "Content-Length: 4")+"body")
	add("expect, HTTP/1.0", "POST /dump HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody")
	add("an ignored body", Post("/ignore", strings.Repeat("x", 5000)))
	add("POST of nothing", Post("/dump", ""))
	add("line feeds alone", strings.ReplaceAll(Post("/dump", "x\n"), "\r\n", "\n"))
	add("carriage returns alone", strings.ReplaceAll(Hello, "\r\n", "\r"))
	add("two carriage returns", strings.ReplaceAll(Hello, "\r\n", "\r\r\n"))
	add("an empty line first", "\r\n"+Hello)
	add("empty lines first", "\r\n\r\n"+Hello)
	add("a space first", " "+Hello)
	whole := Chunked("/dump", "3\r\nabc\r\n0\r\nA: b\r\n\r\n", "Trailer: A")
	for at := 1; at < len(whole); at += 7 {
		add(fmt.Sprintf("an end after %d bytes", at), whole[:at])
	}
	add("an early end of the body", Text("POST", "/dump", "Content-Length: 100")+"only this")

	add("five at once", Hello+Post("/echo", "x")+Text("HEAD", "/hello")+whole+Hello)
	add("twenty at once", strings.Repeat(Hello, 20))
	add("HTTP/1.0, keep-alive, twice", strings.Repeat("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 2))
	add("one after a close", Text("GET", "/hello", "Connection: close")+Hello)
	add("one after HTTP/1.0", "GET /hello HTTP/1.0\r\n\r\n"+Hello)
	add("one after a bad one", "bad\r\n\r\n"+Hello)
	add("one after a short body", Text("POST", "/dump", "Content-Length: 2")+"four"+Hello)
	each("one, and then", []string{"bad\r\n\r\n", "GET /hello HTTP/1.1\r\n\r\n", Hello[:1], Hello[:3], Hello[:20], "GET /hello HTTP/1.1\r\n", "\r", "\r\n", "\r\n\r\n", "\x00"},
		func(then string) string { return Hello + then })
	each("a POST, and then", []string{"\r", "\n", "\r\n", "\r\n\r\n", "\r\nx\r\n", "x", "\r\n" + Hello, "\n\n\n" + Hello, "\r\n\r\n\r\n" + Hello, Hello[:2]},
		func(then string) string { return Post("/echo", "x") + then })
	hijacks("hijack", Text("GET", "/hijack")+"line one\nline two\n")
	hijacks("hijack, a part of a line", Text("GET", "/hijack")+"no end of line")
	hijacks("hijack of a POST", Post("/hijack", "body")+"line\n")
	hijacks("upgrade", Text("GET", "/upgrade", "Connection: Upgrade", "Upgrade: lines"))
	hijacks("upgrade, and lines", Text("GET", "/upgrade", "Connection: Upgrade", "Upgrade: lines")+"line one\n\nline three\n")
	return all
}
