package websocket

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

const (
	fin   = 0x80
	rsv1  = 0x40
	pong  = fin | opPong
	ping  = fin | opPing
	first = byte(Text) // the first fragment of a text
	more  = byte(opContinuation)
	last  = fin | opContinuation
)

// An exchange is what a client sends, and what an echo server answers: messages, and then a close frame unless it is 0.
type exchange struct {
	name string
	send []byte
	want []sent
	code Code
}

type sent struct {
	first   byte
	payload string
}

func join(frames ...[]byte) []byte {
	var b []byte
	for _, f := range frames {
		b = append(b, f...)
	}
	return b
}

// with changes bytes of a frame.
func with(frame []byte, change func(b []byte)) []byte {
	change(frame)
	return frame
}

// lengthened returns a frame whose length has more bytes than it needs.
func lengthened(payload string, size int) []byte {
	f := text(payload)
	head := []byte{f[0], 0x80 | 126, 0, byte(len(payload))}
	if size == 8 {
		head = []byte{f[0], 0x80 | 127, 0, 0, 0, 0, 0, 0, byte(len(payload) >> 8), byte(len(payload))}
	}
	return append(head, f[len(f)-len(payload)-4:]...)
}

func texts(payloads ...string) (s []sent) {
	for _, p := range payloads {
		s = append(s, sent{fin | byte(Text), p})
	}
	return s
}

const maxMessage = 100_000 // of tableServer

// tableServer returns a server that waits for the end of a peer's stream for as long as that takes.
// It takes compressed messages, and compresses none.
func tableServer() *Server {
	return &Server{OnMessage: echo, MaxMessage: maxMessage, CloseTimeout: soon,
		Compression: 1, CompressMin: math.MaxInt}
}

// exchanges are the cases of RFC 6455.
func exchanges() []exchange {
	bye := closing(CodeNormal, "")
	text125, text126, text65535, text65536 := strings.Repeat("a", 125), strings.Repeat("b", 126), strings.Repeat("c", 65535), strings.Repeat("d", 65536)
	list := []exchange{
		// Messages, and lengths in their three forms.
		{"empty text", join(text(""), bye), texts(""), CodeNormal},
		{"text", join(text("Hello"), bye), texts("Hello"), CodeNormal},
		{"binary", join(frame(fin|byte(Binary), "\x00\xff"), bye), []sent{{fin | byte(Binary), "\x00\xff"}}, CodeNormal},
		{"empty binary", join(frame(fin|byte(Binary), ""), bye), []sent{{fin | byte(Binary), ""}}, CodeNormal},
		{"length 125", join(text(text125), bye), texts(text125), CodeNormal},
		{"length 126", join(text(text126), bye), texts(text126), CodeNormal},
		{"length 65535", join(text(text65535), bye), texts(text65535), CodeNormal},
		{"length 65536", join(text(text65536), bye), texts(text65536), CodeNormal},
		{"many messages", join(text("1"), text("22"), text("333"), bye), texts("1", "22", "333"), CodeNormal},
		{"length of 16 bits is not minimal", lengthened("Hello", 2), nil, CodeProtocolError},
		{"length of 16 bits is not minimal, 0", lengthened("", 2), nil, CodeProtocolError},
		{"length of 64 bits is not minimal", lengthened("Hello", 8), nil, CodeProtocolError},
		{"length of 64 bits is not minimal, 300", lengthened(strings.Repeat("x", 300), 8), nil, CodeProtocolError},
		{"length of 64 bits with the highest one", append([]byte{fin | byte(Text), 0xff, 0x80}, make([]byte, 11)...), nil, CodeProtocolError},
		{"frame too big", append([]byte{fin | byte(Binary), 0xff, 0, 0, 0, 0, 0, 1, 0x86, 0xa1}, 1, 2, 3, 4), nil, CodeTooBig},
		{"largest frame", append([]byte{fin | byte(Binary), 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 1, 2, 3, 4), nil, CodeTooBig},
		{"message too big", join(frame(byte(Binary), text65536), frame(last, text65535)), nil, CodeTooBig},
		{"largest message", join(frame(first, text65535), frame(last, strings.Repeat("e", maxMessage-65535)), bye),
			texts(text65535 + strings.Repeat("e", maxMessage-65535)), CodeNormal},

		// Fragments.
		{"two fragments", join(frame(first, "Hel"), frame(last, "lo"), bye), texts("Hello"), CodeNormal},
		{"fragments of nothing", join(frame(first, ""), frame(more, ""), frame(last, ""), bye), texts(""), CodeNormal},
		{"empty first fragment", join(frame(first, ""), frame(last, "x"), bye), texts("x"), CodeNormal},
		{"empty last fragment", join(frame(first, "x"), frame(last, ""), bye), texts("x"), CodeNormal},
		{"binary fragments", join(frame(byte(Binary), "a"), frame(more, "b"), frame(last, "c"), bye), []sent{{fin | byte(Binary), "abc"}}, CodeNormal},
		{"ping between fragments", join(frame(first, "Hel"), frame(ping, "p"), frame(last, "lo"), bye),
			append([]sent{{pong, "p"}}, texts("Hello")...), CodeNormal},
		{"pong between fragments", join(frame(first, "Hel"), frame(pong, "p"), frame(last, "lo"), bye), texts("Hello"), CodeNormal},
		{"close between fragments", join(frame(first, "Hel"), bye), nil, CodeNormal},
		{"continuation of nothing", frame(last, "x"), nil, CodeProtocolError},
		{"continuation after the end", join(text("a"), frame(more, "x")), texts("a"), CodeProtocolError},
		{"text within a text", join(frame(first, "a"), text("b")), nil, CodeProtocolError},
		{"binary within a text", join(frame(first, "a"), frame(byte(Binary), "b")), nil, CodeProtocolError},

		// Control frames.
		{"ping", join(frame(ping, "are you there"), bye), []sent{{pong, "are you there"}}, CodeNormal},
		{"empty ping", join(frame(ping, ""), bye), []sent{{pong, ""}}, CodeNormal},
		{"ping of 125 bytes", join(frame(ping, text125), bye), []sent{{pong, text125}}, CodeNormal},
		{"ping of 126 bytes", frame(ping, text126), nil, CodeProtocolError},
		{"ping of 65536 bytes", frame(ping, text65536), nil, CodeProtocolError},
		{"ten pings", join(frame(ping, "0"), frame(ping, "1"), frame(ping, "2"), frame(ping, "3"), frame(ping, "4"), bye),
			[]sent{{pong, "0"}, {pong, "1"}, {pong, "2"}, {pong, "3"}, {pong, "4"}}, CodeNormal},
		{"pong without ping", join(frame(pong, "x"), text("a"), bye), texts("a"), CodeNormal},
		{"fragmented ping", frame(opPing, "x"), nil, CodeProtocolError},
		{"fragmented pong", frame(opPong, "x"), nil, CodeProtocolError},
		{"fragmented close", frame(opClose, ""), nil, CodeProtocolError},

		// Reserved bits and operation codes.
		{"compressed without an extension", frame(fin|rsv1|byte(Text), "x"), nil, CodeProtocolError},
		{"reserved bit 2", frame(fin|0x20|byte(Text), "x"), nil, CodeProtocolError},
		{"reserved bit 3", frame(fin|0x10|byte(Text), "x"), nil, CodeProtocolError},
		{"reserved bits after a message", join(text("a"), frame(fin|0x70|byte(Text), "x")), texts("a"), CodeProtocolError},
		{"reserved bit of a ping", frame(ping|0x20, "x"), nil, CodeProtocolError},
		{"reserved bit of a fragmented ping", frame(rsv1|opPing, "x"), nil, CodeProtocolError},
		{"reserved bit of a fragmented close frame", frame(rsv1|opClose, ""), nil, CodeProtocolError},
		{"reserved bit of a close frame", with(closing(CodeNormal, ""), func(b []byte) { b[0] |= rsv1 }), nil, CodeProtocolError},

		// Masks.
		{"not masked", []byte{fin | byte(Text), 1, 'x'}, nil, CodeProtocolError},
		{"ping not masked", []byte{ping, 0}, nil, CodeProtocolError},
		{"close not masked", []byte{fin | opClose, 2, 3, 0xe8}, nil, CodeProtocolError},
		{"mask of zeros", join([]byte{fin | byte(Text), 0x80 | 2, 0, 0, 0, 0, 'o', 'k'}, bye), texts("ok"), CodeNormal},

		// UTF-8.
		{"UTF-8", join(text("Κόσμε 𝄞 \U0010ffff"), bye), texts("Κόσμε 𝄞 \U0010ffff"), CodeNormal},
		{"not UTF-8", text("a\xff"), nil, CodeInvalidPayload},
		{"surrogate", text("\xed\xa0\x80"), nil, CodeInvalidPayload},
		{"not the shortest form", text("\xc0\xaf"), nil, CodeInvalidPayload},
		{"beyond Unicode", text("\xf4\x90\x80\x80"), nil, CodeInvalidPayload},
		{"half a character", text("a\xe2\x82"), nil, CodeInvalidPayload},
		{"character across fragments", join(frame(first, "\xf0"), frame(more, "\x9d\x84"), frame(more, ""), frame(last, "\x9e!"), bye), texts("𝄞!"), CodeNormal},
		{"half a character at the end of fragments", join(frame(first, "a\xf0"), frame(last, "\x9d\x84")), nil, CodeInvalidPayload},
		{"not UTF-8 in the first fragment", frame(first, "a\xffb"), nil, CodeInvalidPayload},
		{"not UTF-8 across fragments", join(frame(first, "a\xe2"), frame(more, "(")), nil, CodeInvalidPayload},
		{"bytes that are not UTF-8", join(frame(fin|byte(Binary), "\xff\xfe"), bye), []sent{{fin | byte(Binary), "\xff\xfe"}}, CodeNormal},

		// The end.
		{"close without a code", frame(fin|opClose, ""), nil, CodeNone},
		{"close frame of one byte", frame(fin|opClose, "\x03"), nil, CodeProtocolError},
		{"close with a reason", closing(CodeGoingAway, "good-bye"), nil, CodeGoingAway},
		{"close with a reason of 123 bytes", closing(CodeNormal, strings.Repeat("r", 123)), nil, CodeNormal},
		{"close with a reason of 124 bytes", closing(CodeNormal, strings.Repeat("r", 124)), nil, CodeProtocolError},
		{"close with a reason that is not UTF-8", closing(CodeNormal, "\xff"), nil, CodeInvalidPayload},
		{"message after close", join(bye, text("late")), nil, CodeNormal},
	}
	for op := byte(3); op < 16; op++ {
		if op < opClose || op > opPong {
			list = append(list, exchange{"unknown operation " + string('a'+rune(op)), frame(fin|op, "x"), nil, CodeProtocolError})
		}
	}
	for _, code := range []Code{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999} {
		list = append(list, exchange{"close with a valid code", closing(code, ""), nil, code})
	}
	for _, code := range []Code{0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535} {
		list = append(list, exchange{"close with an invalid code", closing(code, ""), nil, CodeProtocolError})
	}
	return list
}

// hello is the message Hello in one block, without the tail (RFC 7692, 7.2.3.1).
const hello = "\xf2\x48\xcd\xc9\xc9\x07\x00"

// deflated returns a text that is compressed to b.
func deflated(b string) []byte { return frame(fin|rsv1|byte(Text), b) }

// stored returns blocks that are not compressed.
func stored(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		part := text[:min(len(text), math.MaxUint16)]
		text = text[len(part):]
		n := len(part)
		b.Write([]byte{0, byte(n), byte(n >> 8), byte(^n), byte(^n >> 8)})
		b.WriteString(part)
	}
	return b.String() + "\x00"
}

// compressedExchanges are the cases of RFC 7692.
func compressedExchanges() []exchange {
	bye := closing(CodeNormal, "")
	final := "\xf3\x48\xcd\xc9\xc9\x07\x00" // Hello
	largest, noise := strings.Repeat("e", maxMessage), make([]byte, maxMessage)
	rand.NewChaCha8([32]byte{}).Read(noise)
	begin := func(b string) []byte { return frame(rsv1|first, b) }
	end := func(b string) []byte { return frame(last, b) }
	binary := func(b string) []byte { return frame(fin|rsv1|byte(Binary), b) }
	good := func(name string, send []byte, want ...string) exchange {
		return exchange{name, join(send, bye), texts(want...), CodeNormal}
	}
	bad := func(name string, send []byte, code Code) exchange {
		return exchange{name, send, nil, code}
	}
	return []exchange{
		// The examples of 7.2.3.
		good("deflated", deflated(hello), "Hello"),
		good("deflated fragments", join(begin(hello[:3]), end(hello[3:])), "Hello"),
		good("deflated twice", join(deflated(hello), deflated(hello)), "Hello", "Hello"),
		{"window of the message before", join(deflated(hello), deflated("\xf2\x00\x11\x00\x00")),
			texts("Hello"), CodeInvalidPayload},
		good("stored block", deflated("\x00\x05\x00\xfa\xffHello\x00"), "Hello"),
		good("final block", deflated(final+"\x00"), "Hello"),
		good("two blocks", deflated("\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00"), "Hello"),
		good("deflated nothing", deflated("\x00"), ""),

		// Blocks, fragments and control frames.
		good("no block", deflated(""), ""),
		good("no block in fragments", join(begin(""), frame(more, ""), end("")), ""),
		good("final block without a byte behind it", deflated(final), "Hello"),
		good("three final blocks", deflated(final+final+final+"\x00"), "HelloHelloHello"),
		good("block after a final one", deflated(final+hello), "HelloHello"),
		good("final block of nothing", deflated("\x03\x00"), ""),
		good("stored blocks", deflated(stored(largest)), largest),
		good("empty fragments of a block", join(begin(""), frame(more, hello), end("")), "Hello"),
		{"control frames between fragments", join(begin(hello[:1]), frame(ping, "p"),
			frame(pong, ""), frame(more, hello[1:2]), frame(ping, "q"), end(hello[2:]), bye),
			append([]sent{{pong, "p"}, {pong, "q"}}, texts("Hello")...), CodeNormal},
		{"close between deflated fragments", join(begin(hello[:1]), bye), nil, CodeNormal},
		good("deflated or not", join(text("a"), deflated(hello), frame(first, "b"), end("c"),
			deflated(hello)), "a", "Hello", "bc", "Hello"),

		// What is not deflated data.
		bad("not deflated", deflated("\xff\xff\xff"), CodeInvalidPayload),
		bad("reserved type of block", deflated("\x06"), CodeInvalidPayload),
		bad("length of a stored block", deflated("\x00\x05\x00\xfa\xfeHello\x00"), CodeInvalidPayload),
		bad("stored block is cut off", deflated("\x00\x05\x00\xfa\xffHel"), CodeInvalidPayload),
		bad("block is cut off", deflated(hello[:3]), CodeInvalidPayload),
		bad("large block is cut off", deflated(squeeze(largest)[:50]), CodeInvalidPayload),
		bad("tail is not removed", deflated(hello+flushTail), CodeInvalidPayload),
		bad("not deflated after a final block", deflated(final+"more"), CodeInvalidPayload),
		bad("window of a final block", deflated(final+"\xf2\x00\x11\x00\x00"), CodeInvalidPayload),

		// Reserved bits.
		bad("bit of a continuation", join(begin("x"), frame(rsv1|last, "y")), CodeProtocolError),
		bad("bit of a continuation alone", join(frame(first, "x"), frame(rsv1|last, "y")),
			CodeProtocolError),
		bad("bit of a ping", frame(rsv1|ping, "x"), CodeProtocolError),
		bad("bit of a pong", frame(rsv1|pong, "x"), CodeProtocolError),
		bad("bit of a close frame", frame(rsv1|fin|opClose, ""), CodeProtocolError),
		bad("bit of a fragmented ping", frame(rsv1|opPing, "x"), CodeProtocolError),
		bad("bit of a fragmented pong", frame(rsv1|opPong, "x"), CodeProtocolError),
		bad("bit of a fragmented close frame", frame(rsv1|opClose, "\x03\xe8"), CodeProtocolError),
		bad("bit of a ping between deflated fragments", join(begin(hello[:1]), frame(rsv1|opPing, "x")),
			CodeProtocolError),
		bad("bit 2", frame(fin|0x60|byte(Text), hello), CodeProtocolError),
		bad("bit 3", frame(fin|0x50|byte(Text), hello), CodeProtocolError),

		// UTF-8.
		good("character across fragments and blocks", join(begin(stored("\xf0\x9d")+flushTail),
			end(stored("\x84\x9e!"))), "𝄞!"),
		bad("deflated text is not UTF-8", deflated(squeeze("\xff")), CodeInvalidPayload),
		bad("deflated text is half a character", deflated(squeeze("a\xe2\x82")), CodeInvalidPayload),
		{"deflated bytes that are not UTF-8", join(binary(squeeze("\xff\xfe")), bye),
			[]sent{{fin | byte(Binary), "\xff\xfe"}}, CodeNormal},

		// Lengths.
		good("largest deflated message", deflated(squeeze(largest)), largest),
		{"largest message that cannot be compressed", join(binary(squeeze(string(noise))), bye),
			[]sent{{fin | byte(Binary), string(noise)}}, CodeNormal},
		bad("deflated message too big by a byte", deflated(squeeze(largest+"e")), CodeTooBig),
		bad("stored message too big by a byte", deflated(stored(largest+"e")), CodeTooBig),
		bad("final blocks too big by a byte",
			deflated("\x01\x01\x00\xfe\xffe"+squeeze(largest)), CodeTooBig),
		bad("bomb", binary(squeeze(strings.Repeat("\x00", 20<<20))), CodeTooBig),
		bad("deflated frame too big", binary(strings.Repeat("\x00", maxMessage*9/8+65))[:14],
			CodeTooBig),
		bad("deflated fragments too big", join(frame(rsv1|byte(Binary), largest),
			end(strings.Repeat("\x00", maxMessage/8+65))[:8]), CodeTooBig),
		{"message too big after a deflated one",
			join(deflated(squeeze(largest)), text(largest + "e")[:14]), texts(largest), CodeTooBig},
	}
}

// A group has exchanges of clients whose request has the same field.
type group struct {
	header string
	list   []exchange
}

var groups = sync.OnceValue(func() []group { // compressing takes a second
	return []group{{"", exchanges()}, {offer, compressedExchanges()}}
})

// run sends in pieces of any size, and compares the answers. pause is called between the pieces.
func (e *exchange) run(p *peer, size int, pause func()) {
	p.Helper()
	answered := make(chan bool)
	go func() { // a client that writes and does not read would block
		defer close(answered)
		for i := 0; i < len(e.want); i++ {
			f, got, err := p.read()
			for f == pong && got != e.want[i].payload && i+1 < len(e.want) && e.want[i+1].first == pong {
				i++ // only the latest of several pings must be answered
			}
			if want := e.want[i]; err != nil || f != want.first || got != want.payload {
				p.Errorf("frame %#x %.100q (%d bytes), %v, want %#x %.100q (%d bytes)", f, got, len(got), err, want.first, want.payload, len(want.payload))
				return
			}
		}
	}()
	for b := e.send; len(b) > 0; {
		n := min(size, len(b))
		if _, err := p.Conn.Write(b[:n]); err != nil {
			break // the server may have closed
		}
		if b = b[n:]; len(b) > 0 && pause != nil {
			pause()
		}
	}
	<-answered
	if p.Failed() {
		p.FailNow()
	}
	p.wantClose(e.code)
	p.wantEnd()
}

func TestExchanges(t *testing.T) {
	t.Parallel() // it waits
	for _, kind := range hosts {
		t.Run(kind, func(t *testing.T) {
			h := serve(t, kind, tableServer())
			for _, g := range groups() {
				for _, e := range g.list {
					t.Run(e.name, func(t *testing.T) {
						for _, size := range []int{1 << 20, 4096, 7} {
							if size == 7 && len(e.send) > 1000 {
								continue
							}
							p := h.connect(t, g.header)
							e.run(p, size, nil)
							p.Close()
						}
					})
				}
			}
		})
	}
}

// The same, byte by byte, and the connection is parked between any two bytes.
func TestExchangesParked(t *testing.T) {
	for _, kind := range []string{"park", "park TLS"} {
		t.Run(kind, func(t *testing.T) {
			for _, g := range groups() {
				for _, e := range g.list {
					if len(e.send) > 400 || kind == "park TLS" && testing.Short() {
						continue
					}
					t.Run(e.name, func(t *testing.T) {
						t.Parallel()
						h := serve(t, kind, tableServer())
						p := h.connect(t, g.header)
						parks := uint64(0)
						e.run(p, 1, func() {
							until(t, "it is parked again", func() bool {
								s := h.server.Lots()[0].Stats()
								return h.server.Stats().Conns == 0 || s.Parked == 1 && s.Running == 0 && s.Parks > parks
							})
							parks = h.server.Lots()[0].Stats().Parks
						})
					})
				}
			}
		})
	}
}

// Messages that arrive with the request are in the buffer of net/http.
func TestEarlyBytes(t *testing.T) {
	for _, kind := range hosts {
		t.Run(kind, func(t *testing.T) {
			h := serve(t, kind, &Server{OnMessage: echo})
			all := join(text("early"), frame(ping, "p"), text("bird"))
			for _, n := range []int{1, 5, 11, 20, len(all)} {
				p := h.connect(t, "", all[:n]...)
				p.send(all[n:]...)
				p.wantText("early")
				p.want(pong, "p")
				p.wantText("bird")
			}
		})
	}
}
