package websocket

import (
	"bytes"
	"compress/flate"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

const offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"

// squeeze compresses as another implementation would.
func squeeze(text string) string {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		panic(err)
	}
	io.WriteString(w, text)
	w.Flush() // a Buffer takes everything
	return strings.TrimSuffix(b.String(), "\x00\x00\xff\xff")
}

// expand inflates a message alone, without what was sent before.
func expand(t testing.TB, b string) string {
	t.Helper()
	got, err := io.ReadAll(flate.NewReader(strings.NewReader(b + "\x00\x00\xff\xff\x01\x00\x00\xff\xff")))
	must(t, err)
	return string(got)
}

func TestCompression(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		opened := make(chan bool, 20)
		s := &Server{Compression: flate.BestSpeed, CompressMin: 100, OnMessage: echo,
			OnOpen: func(*Conn, *http.Request) error { opened <- true; return nil }}
		h := serve(t, kind, s)
		p := h.connect(t, offer)
		if got := p.answer.Header.Get("Sec-WebSocket-Extensions"); got != "permessage-deflate; server_no_context_takeover; client_no_context_takeover" {
			t.Errorf("%q", got)
		}
		long := strings.Repeat("compress me, é ", 5000)
		for range 3 { // without context takeover each message stands alone
			b := squeeze(long)
			p.send(join(frame(rsv1|first, b[:10]), frame(ping, "p"), frame(more, b[10:20]), frame(last, b[20:]))...)
			p.want(pong, "p")
			f, got := p.next()
			if f != fin|rsv1|byte(Text) || len(got) > len(long)/10 || expand(t, got) != long {
				t.Fatalf("%#x, %d bytes", f, len(got))
			}
			// A pong that is not known to be written yet would hold the next one back until after the message.
			until(t, "nothing is queued", func() bool { return s.Stats().QueuedBytes == 0 })
		}
		short := strings.Repeat("s", 99)
		p.send(frame(fin|rsv1|byte(Text), squeeze(short))...)
		p.wantText(short)
		p.send(text(short + "t")...) // what is not compressed is allowed at any time
		if f, got := p.next(); f != fin|rsv1|byte(Text) || expand(t, got) != short+"t" {
			t.Errorf("%#x %q", f, got)
		}
		noise := make([]byte, 1000)
		rand.NewChaCha8([32]byte{}).Read(noise)
		p.send(frame(fin|byte(Binary), string(noise))...)
		p.want(fin|byte(Binary), string(noise)) // it would have become longer
		// A broadcast is compressed for those that have agreed to it.
		for range len(opened) {
			<-opened
		}
		plain := h.connect(t, "")
		<-opened // a client has its answer before the server has the connection
		m, err := s.Prepare(Text, []byte(long))
		must(t, err)
		if n := s.Broadcast(m); n != 2 {
			t.Errorf("sent to %d", n)
		}
		plain.wantText(long)
		if f, got := p.next(); f != fin|rsv1|byte(Text) || expand(t, got) != long {
			t.Errorf("%#x", f)
		}
	})
}

// A broadcast is compressed once, and all connections that have agreed to compression share the
// frame. Of one that does not become shorter there is no second copy.
func TestPreparedFrames(t *testing.T) {
	s := &Server{OnMessage: echo, Compression: 1}
	must(t, s.prepare())
	plain, one := &Conn{server: s}, &Conn{server: s, compressed: true}
	other := &Conn{server: s, compressed: true}
	noise := make([]byte, 1000)
	rand.NewChaCha8([32]byte{}).Read(noise)
	long := bytes.Repeat([]byte("x"), 1000)
	for _, c := range []struct {
		payload    []byte
		compressed bool
	}{{long, true}, {long[:512], true}, {long[:511], false}, {noise, false}} {
		m, err := s.Prepare(Binary, c.payload)
		must(t, err)
		a, b, p := m.frame(one), m.frame(other), m.frame(plain)
		shared, bit := &a[0] == &p[0], a[0]&rsv1 != 0
		if &a[0] != &b[0] || shared == c.compressed || bit != c.compressed || p[0]&rsv1 != 0 {
			t.Errorf("%d bytes: frames %#x, %#x and %#x", len(c.payload), a[0], b[0], p[0])
		}
	}
}

// A message that inflates to more than the limit takes no more memory than the limit, and what it
// outgrows on the way there.
func TestBombMemory(t *testing.T) {
	const limit = 1 << 20
	bomb := []byte(squeeze(strings.Repeat("\x00", 32<<20)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := inflate(nil, bomb, limit)
	runtime.ReadMemStats(&after)
	wantErr(t, err, errTooBig)
	if cap(got) != limit+1 {
		t.Errorf("capacity of %d bytes", cap(got))
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 3*limit+256<<10 { // with a decompressor
		t.Errorf("%d bytes were allocated", n)
	}
}

// Bytes of a stranger, in any pieces: the decoder finds the same messages as with all of them at once, within the limits,
// and text is UTF-8.
func FuzzDecoder(f *testing.F) {
	for _, c := range protocolCases() {
		if b := c.sent(); len(b) < 1000 {
			f.Add(b, uint64(1), strings.HasPrefix(c.section, "12"))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, seed uint64, compression bool) {
		limit := limits{frame: 300, message: 500, compression: compression}
		random := rand.New(rand.NewPCG(seed, 1))
		whole, errWhole := decode(t, bytes.Clone(b), &limit, func(n int) int { return n })
		pieces, errPieces := decode(t, bytes.Clone(b), &limit, func(n int) int { return 1 + random.IntN(min(n, 9)) })
		if len(whole) != len(pieces) {
			t.Fatalf("%d messages, in pieces %d", len(whole), len(pieces))
		}
		for i := range whole {
			if whole[i] != pieces[i] {
				t.Errorf("%q, in pieces %q", whole[i], pieces[i])
			}
		}
		if (errWhole == nil) != (errPieces == nil) || errWhole != nil && errWhole.Error() != errPieces.Error() {
			t.Errorf("%v, in pieces %v", errWhole, errPieces)
		}
	})
}

func decode(t *testing.T, b []byte, limit *limits, size func(int) int) (all []string, err error) {
	d := decoders.Get().(*decoder)
	defer func() {
		d.reset()
		decoders.Put(d)
	}()
	for len(b) > 0 {
		piece := b[:size(len(b))]
		b = b[len(piece):]
		for len(piece) > 0 {
			a, n, err := d.next(piece, limit)
			if err != nil {
				return all, err
			}
			if n <= 0 || n > len(piece) {
				t.Fatalf("used %d of %d bytes", n, len(piece))
			}
			if piece = piece[n:]; a.op == 0 && len(piece) > 0 && d.idle() {
				t.Fatal("bytes are left, and nothing is incomplete")
			}
			most := int(limit.message)
			if d.compressed {
				most = int(mostDeflated(limit.message))
			}
			if len(d.message) > most || len(d.control) > maxControl || len(a.payload) > most {
				t.Fatal("beyond the limits")
			}
			if a.compressed && limit.compression {
				if a.payload, err = inflate(nil, a.payload, limit.message); err != nil {
					return all, err
				}
				if len(a.payload) > int(limit.message) {
					t.Fatal("inflated beyond the limit")
				}
			}
			switch {
			case a.op == 0:
				continue
			case a.op == byte(Text) && !a.compressed && !utf8.Valid(a.payload):
				t.Errorf("%q", a.payload)
			case a.compressed && !limit.compression:
				t.Error("compressed")
			}
			all = append(all, string(a.op+'0')+string(a.payload))
			if a.op == opClose {
				if e, err := parseClose(a.payload); err == nil && e.Code != CodeNone && !e.Code.valid() {
					t.Errorf("%v", e)
				}
			}
		}
	}
	return all, nil
}

// Bytes of a stranger are inflated as io.ReadAll does it, up to the limit. What this package has
// compressed is inflated to the same bytes, also behind a final block.
func FuzzInflate(f *testing.F) {
	for _, c := range protocolCases() {
		if b := c.sent(); strings.HasPrefix(c.section, "12") && len(b) < 10_000 {
			f.Add(b[min(6, len(b)):])
		}
	}
	f.Add([]byte("\xf2\x48\xcd\xc9\xc9\x07\x00"))
	f.Add([]byte("\x00"))
	f.Add([]byte(squeeze(strings.Repeat("x", 5000))))
	var levels []*deflater
	for level := range flate.BestCompression {
		levels = append(levels, &deflater{level: level + 1})
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 2000
		got, err := inflate(nil, bytes.Clone(b), limit)
		if cap(got) > limit+1 || err == nil && len(got) > limit {
			t.Errorf("%d bytes, capacity %d", len(got), cap(got))
		}
		reader := bytes.NewReader(append(bytes.Clone(b), tail...))
		want, wantErr := io.ReadAll(io.LimitReader(flate.NewReader(reader), limit+1))
		switch whole := wantErr == nil && reader.Len() == 0; {
		case whole && len(want) <= limit && (err != nil || !bytes.Equal(got, want)):
			t.Errorf("%q, %v, want %q", got, err, want)
		case len(want) > limit && err != errTooBig:
			t.Errorf("%v for %d bytes or more", err, len(want))
		case !bytes.HasPrefix(got, want[:min(len(want), limit)]):
			t.Errorf("%q, want it to begin with %q", got, want)
		}
		for _, d := range levels {
			deflated := d.deflate(nil, b)
			again, err := inflate(nil, deflated, uint64(len(b)))
			if err != nil || !bytes.Equal(again, b) {
				t.Errorf("level %d: %v, %d bytes of %d", d.level, err, len(again), len(b))
			}
			behind := append([]byte("\x01\x01\x00\xfe\xffx"), deflated...) // a final block
			again, err = inflate(nil, behind, uint64(len(b)+1))
			if err != nil || string(again) != "x"+string(b) {
				t.Errorf("level %d: behind a final block: %v, %d bytes", d.level, err, len(again))
			}
			if len(b) > 0 {
				if _, err = inflate(nil, deflated, uint64(len(b)-1)); err != errTooBig {
					t.Errorf("level %d: %v with a limit that is too low", d.level, err)
				}
			}
		}
	})
}

func FuzzNegotiate(f *testing.F) {
	f.Add("permessage-deflate; client_max_window_bits=10, x; a=\"b\\\"\"")
	f.Fuzz(func(t *testing.T, offers string) {
		answer, ok := negotiate([]string{offers})
		if ok && !strings.HasPrefix(answer, "permessage-deflate; server_no_context_takeover; client_no_context_takeover") {
			t.Errorf("%q", answer)
		}
	})
}
