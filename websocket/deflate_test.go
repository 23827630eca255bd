package websocket

import (
	"bytes"
	"compress/flate"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNegotiate(t *testing.T) {
	const ours = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
	for _, c := range []struct{ offer, want string }{
		{"permessage-deflate", ours},
		{"Permessage-Deflate ; Client_Max_Window_Bits", ours},
		{"permessage-deflate; client_max_window_bits", ours},
		{"permessage-deflate; client_max_window_bits=10", ours},
		{`permessage-deflate; client_max_window_bits="8"`, ours},
		{"permessage-deflate; server_no_context_takeover; client_no_context_takeover", ours},
		{"permessage-deflate; server_max_window_bits=15", ours + "; server_max_window_bits=15"},
		{"permessage-deflate; server_max_window_bits=10, permessage-deflate", ours},
		{"x-webkit-deflate-frame, permessage-deflate", ours},
		{"", ""},
		{"permessage-deflate; server_max_window_bits=10", ""},
		{"permessage-deflate; server_max_window_bits", ""},
		{"permessage-deflate; server_max_window_bits=16", ""},
		{"permessage-deflate; client_max_window_bits=7", ""},
		{"permessage-deflate; client_max_window_bits=16", ""},
		{"permessage-deflate; client_max_window_bits=08", ""},
		{"permessage-deflate; client_max_window_bits=+9", ""},
		{"permessage-deflate; client_max_window_bits=", ""},
		{"permessage-deflate; client_no_context_takeover=1", ""},
		{"permessage-deflate; server_no_context_takeover; server_no_context_takeover", ""},
		{"permessage-deflate; unknown", ""},
		{"permessage-deflate=1", ""},
		{"permessage-bzip2", ""},
		{`permessage-bzip2; a="b, permessage-deflate"`, ""},
		{`permessage-bzip2; a="\"b, permessage-deflate"`, ""},
	} {
		if got, ok := negotiate([]string{"other", c.offer}); got != c.want || ok != (c.want != "") {
			t.Errorf("%q: %q %v, want %q", c.offer, got, ok, c.want)
		}
	}
}

const offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"

// squeeze compresses as another implementation would.
func squeeze(t testing.TB, text string) string {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	must(t, err)
	io.WriteString(w, text)
	must(t, w.Flush())
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
		e, opened := make(ends, 20), make(chan bool, 20)
		s := &Server{Compression: flate.BestSpeed, CompressMin: 100, MaxMessage: 200_000, OnMessage: echo, OnClose: e.closed,
			OnOpen: func(*Conn, *http.Request) error { opened <- true; return nil }}
		h := serve(t, kind, s)
		p := h.connect(t, offer)
		if got := p.answer.Header.Get("Sec-WebSocket-Extensions"); got != "permessage-deflate; server_no_context_takeover; client_no_context_takeover" {
			t.Errorf("%q", got)
		}
		long := strings.Repeat("compress me, é ", 5000)
		for range 3 { // without context takeover each message stands alone
			b := squeeze(t, long)
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
		p.send(frame(fin|rsv1|byte(Text), squeeze(t, short))...)
		p.wantText(short)
		p.send(text(short + "t")...) // what is not compressed is allowed at any time
		if f, got := p.next(); f != fin|rsv1|byte(Text) || expand(t, got) != short+"t" {
			t.Errorf("%#x %q", f, got)
		}
		noise := make([]byte, 1000)
		rand.NewChaCha8([32]byte{}).Read(noise)
		p.send(frame(fin|byte(Binary), string(noise))...)
		p.want(fin|byte(Binary), string(noise)) // it would have become longer
		p.send(frame(fin|rsv1|byte(Text), "\x00")...)
		p.wantText("")
		p.send(frame(fin|rsv1|byte(Text), "")...)
		p.wantText("")
		final := append([]byte("\x01\x02\x00\xfd\xff"), "ok\x00"...) // a final block, and the byte that follows it
		p.send(frame(fin|rsv1|byte(Text), string(final))...)
		p.wantText("ok")

		for name, c := range map[string]struct {
			send []byte
			code Code
		}{
			"bomb":              {frame(fin|rsv1|byte(Binary), squeeze(t, strings.Repeat("\x00", 20<<20))), CodeTooBig},
			"just too big":      {frame(fin|rsv1|byte(Binary), squeeze(t, strings.Repeat("\x00", 200_001))), CodeTooBig},
			"not deflated":      {frame(fin|rsv1|byte(Text), "\xff\xff\xff"), CodeInvalidPayload},
			"cut":               {frame(fin|rsv1|byte(Text), squeeze(t, long)[:50]), CodeInvalidPayload},
			"after the end":     {frame(fin|rsv1|byte(Text), string(final)+"more"), CodeInvalidPayload},
			"not UTF-8":         {frame(fin|rsv1|byte(Text), squeeze(t, "\xff")), CodeInvalidPayload},
			"bit in a fragment": {join(frame(rsv1|first, "x"), frame(rsv1|last, "y")), CodeProtocolError},
			"bit in a ping":     {frame(rsv1|ping, "x"), CodeProtocolError},
		} {
			p := h.connect(t, offer)
			p.send(c.send...)
			first, payload := p.next()
			if first != fin|opClose || len(payload) < 2 || Code(payload[0])<<8|Code(payload[1]) != c.code {
				t.Errorf("%s: %#x %q, want %d", name, first, payload, c.code)
			}
			p.Close()
			wantCode(t, e.wait(t), c.code, false)
		}

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

// A message that inflates to more than the limit takes no more memory than the limit.
func TestBombMemory(t *testing.T) {
	const limit = 1 << 20
	bomb := []byte(squeeze(t, strings.Repeat("\x00", 32<<20)))
	got, err := inflate(nil, bomb, limit)
	wantErr(t, err, errTooBig)
	if cap(got) > 2*limit {
		t.Errorf("%d bytes", cap(got))
	}
}

// Bytes of a stranger, in any pieces: the decoder finds the same messages as with all of them at once, within the limits,
// and text is UTF-8.
func FuzzDecoder(f *testing.F) {
	for _, e := range exchanges() {
		if len(e.send) < 1000 {
			f.Add(e.send, uint64(1), false)
		}
	}
	f.Add(frame(fin|rsv1|byte(Text), squeeze(f, "Hello")), uint64(3), true)
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
			if len(d.message) > 500 || len(d.control) > maxControl || len(a.payload) > 500 {
				t.Fatal("beyond the limits")
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

func FuzzInflate(f *testing.F) {
	f.Add([]byte(squeeze(f, "Hello")))
	f.Add([]byte("\x00"))
	f.Add([]byte(squeeze(f, strings.Repeat("x", 5000))))
	d := &deflater{level: 1}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := inflate(nil, b, 2000)
		if err == nil && len(got) > 2000 {
			t.Errorf("%d bytes", len(got))
		}
		again, err := inflate(nil, d.deflate(nil, b), uint64(len(b)))
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%v, %d bytes of %d", err, len(again), len(b))
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
