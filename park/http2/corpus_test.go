package http2

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/test/httpcorpus"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// A translated is a request of the HTTP/1.1 corpus in HTTP/2's form.
type translated struct {
	fields   []string
	body     []byte
	trailers []string
}

// connectionFields are not translated. With them a request is malformed; package http2's documents say how net/http differs.
var connectionFields = []string{"connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade", "host"}

// translate returns the requests in a text, those that are well-formed, or one that is well-formed only as far as names and
// values can be found. It returns none for other texts.
func translate(text string) (all []translated) {
	in := bufio.NewReader(strings.NewReader(text))
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			break
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			break
		}
		q := translated{body: body}
		q.fields = []string{":method", r.Method, ":scheme", "http", ":authority", r.Host, ":path", r.RequestURI}
		q.add(r.Header)
		if len(r.Trailer) > 0 {
			q.fields = append(q.fields, "trailer", strings.Join(slices.Sorted(keys(r.Trailer)), ", "))
			t := translated{}
			t.add(r.Trailer)
			q.trailers = t.fields
		}
		all = append(all, q)
	}
	if len(all) > 0 {
		return all
	}
	head, body, ok := strings.Cut(text, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	first := strings.Split(lines[0], " ")
	if !ok || len(first) != 3 {
		return nil
	}
	q := translated{fields: []string{":method", first[0], ":scheme", "http", ":path", first[1]}, body: []byte(body)}
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.ToLower(name); !ok || name == "transfer-encoding" {
			return nil
		}
		if name == "host" {
			name = ":authority"
			q.fields = slices.Insert(q.fields, 4, name, strings.TrimSpace(value))
		} else if !slices.Contains(connectionFields, name) {
			q.fields = append(q.fields, name, strings.TrimSpace(value))
		}
	}
	return []translated{q}
}

func keys(h http.Header) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range h {
			if !yield(name) {
				return
			}
		}
	}
}

func (q *translated) add(h http.Header) {
	for _, name := range slices.Sorted(keys(h)) {
		lower := strings.ToLower(name)
		if slices.Contains(connectionFields, lower) {
			continue
		}
		for _, value := range h[name] {
			q.fields = append(q.fields, lower, value)
		}
	}
}

// frames returns what is sent for a request, in pieces between which the client pauses: each frame, the first ones cut
// somewhere.
func (p *peer) frames(id uint32, q translated, random *rand.Rand) (pieces [][]byte) {
	cut := func(whole bool) {
		b := bytes.Clone(p.out.Bytes())
		p.out.Reset()
		if !whole && len(b) > 1 {
			at := 1 + random.IntN(len(b)-1)
			pieces = append(pieces, b[:at])
			b = b[at:]
		}
		pieces = append(pieces, b)
	}
	p.WritePing(false, [8]byte{})
	cut(false)
	block := p.fields(q.fields...)
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:len(block)/2],
		EndStream: len(q.body) == 0 && q.trailers == nil})
	cut(false)
	for rest := block[len(block)/2:]; ; rest = rest[min(len(rest), wire.MaxSize):] {
		last := len(rest) <= wire.MaxSize
		p.WriteContinuation(id, last, rest[:min(len(rest), wire.MaxSize)])
		cut(false)
		if last {
			break
		}
	}
	for body := q.body; len(body) > 0; {
		n := min(len(body), max(1, len(q.body)/2))
		p.WriteData(id, n == len(body) && q.trailers == nil, body[:n])
		body = body[n:]
		cut(true)
	}
	if q.trailers != nil {
		block := p.fields(q.trailers...)
		p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: true, EndHeaders: true})
		cut(true)
	}
	return pieces
}

// answerTo reads until a stream has ended, and returns what the server has answered. ended is set if the connection takes no
// further stream.
func (p *peer) answerTo(id uint32) (answer string, ended bool) {
	var b strings.Builder
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return b.String() + "the end", true
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			ended = true
			if f.ErrCode != http2.ErrCodeNo {
				return b.String() + f.ErrCode.String(), true
			}
			continue
		}
		if f.Header().StreamID != id {
			continue
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			var fields []string
			for _, h := range f.Fields {
				if h.Name == "date" {
					h.Value = "then"
				}
				fields = append(fields, h.Name+": "+h.Value)
			}
			slices.Sort(fields)
			fmt.Fprintf(&b, "%q\n", fields)
			if f.StreamEnded() {
				return b.String(), ended
			}
		case *http2.DataFrame:
			b.Write(f.Data())
			if f.StreamEnded() {
				return b.String(), ended
			}
		case *http2.RSTStreamFrame:
			return b.String() + "reset " + f.ErrCode.String(), ended
		}
	}
}

// run sends requests one after the other, and returns the answers. pause is called between any two pieces, with the number
// of requests whose headers were sent, and of those that were answered.
func (p *peer) run(all []translated, random *rand.Rand, pause func(begun, answered int)) string {
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	if _, ok := p.conn.(*tls.Conn); ok {
		for _, q := range all {
			q.fields[slices.Index(q.fields, ":scheme")+1] = "https"
		}
	}
	p.WriteWindowUpdate(0, 1<<20)
	must(p.t, p.send())
	var b strings.Builder
	for i, q := range all {
		id := uint32(2*i + 1)
		headers := 6 // pieces until the headers are there; more if the block is long
		for j, piece := range p.frames(id, q, random) {
			begun := i
			if j >= headers {
				begun = i + 1
			}
			pause(begun, i)
			if _, err := p.conn.Write(piece); err != nil {
				break // the answer says why
			}
		}
		answer, ended := p.answerTo(id)
		fmt.Fprintf(&b, "%s\n", answer)
		if ended {
			break
		}
	}
	return b.String()
}

// Each request of the HTTP/1.1 corpus, in HTTP/2's form, gets the answer of net/http, although the client pauses between any
// two frames, and within the first, until the server has parked the connection.
func TestCorpus(t *testing.T) {
	var requests []httpcorpus.Request
	for _, r := range httpcorpus.Requests() {
		if !r.Hijacks && len(translate(r.Text)) > 0 {
			requests = append(requests, r)
		}
	}
	if len(requests) < 300 {
		t.Errorf("%d requests could be translated", len(requests))
	}
	both(t, func(t *testing.T, secure bool) {
		requests := requests
		if secure && *soak == 0 {
			requests = slices.Collect(every(5, requests))
		}
		const lanes = 4
		var all sync.WaitGroup
		for lane := range lanes {
			stock := handler(httpcorpus.Handler().ServeHTTP)
			stock.ConnContext = httpcorpus.ConnContext
			theirs, _ := start(t, stock, stock, secure)
			hs := handler(httpcorpus.Handler().ServeHTTP)
			hs.ConnContext = httpcorpus.ConnContext
			s := parked(hs)
			ours, _ := start(t, s, hs, secure)
			all.Go(func() {
				for k := lane; k < len(requests); k += lanes {
					compare(t, requests[k], theirs, ours, s, uint64(k))
				}
			})
		}
		all.Wait()
		t.Logf("%d requests", len(requests))
	})
}

func every[E any](n int, all []E) func(func(E) bool) {
	return func(yield func(E) bool) {
		for i := 0; i < len(all) && yield(all[i]); i += n {
		}
	}
}

// compare compares the answer of s, which has no other connection, with net/http's.
func compare(t *testing.T, r httpcorpus.Request, theirs, ours string, s *park.HTTPServer, seed uint64) {
	texts := translate(r.Text)
	parks, begins := s.Stats().Parks, true
	a, b := dial(t, theirs), dial(t, ours)
	want := a.run(texts, rand.New(rand.NewPCG(seed, 1)), func(int, int) {})
	got := b.run(texts, rand.New(rand.NewPCG(seed, 1)), func(begun, answered int) {
		if begun == answered {
			until(t, "the connection is parked again", func() bool {
				st, n := s.Stats(), len(connsOf(s))
				begins = begins && n == 0
				return st.Parks > parks && st.Parked == 1 || n == 0 && !begins // the end
			})
			parks = s.Stats().Parks
		}
	})
	switch {
	case !slices.Contains(differences, r.Name):
		if got != want {
			t.Errorf("%s: %s", r.Name, httpcorpus.Diff(got, want))
		}
	case got != "reset PROTOCOL_ERROR\n":
		t.Errorf("%s: %s", r.Name, got)
	}
	a.conn.Close()
	b.conn.Close()
	until(t, "the connection has ended", func() bool { return len(connsOf(s)) == 0 })
}

// differences are the requests whose answers differ, for the reasons that the package's documents name.
var differences = []string{
	// The method is not a token.
	`method "G(T"`, `method "GET:"`, `method "GÉT"`, `request line "\tGET /dump HTTP/1.1"`,
	// The length is not that of the body, or there are two.
	`length "5"`, `length "9223372036854775807"`, `length "4\r\nContent-Length: 5"`, "an early end of the body",
	// A value has a forbidden character, and a body follows: net/http ends the connection.
	`length "4\x00"`,
	// The path is no path.
	`target "http://x/dump"`, `target "http://y/dump"`, `target "http://"`, `target "http:///dump"`,
	`target "https://x:443/dump?q"`, `target "ftp://x/y"`, `target "x:80"`,
	// The host has a character that is not valid in one.
	`host "Host: a b"`, `host "Host: a/b"`, `host "Host: é"`, `line " A: b"`, `line "\tA: b"`,
}
