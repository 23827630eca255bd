package websocket

import (
	"embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The cases of the protocol are scripts below testdata/protocol, in the sections of the public test
// suite of WebSocket servers. Each file has sections, each section quotations of RFC 6455 or 7692,
// and below each quotation the cases that check it:
//
//	section 2 Pings and pongs
//	> RFC 6455, 5.5.2: upon receipt of a Ping frame, an endpoint MUST send a Pong frame in response
//	case ping
//		send ping "Hello"
//		want pong "Hello"
//
// The client of a case opens a connection to a server that echoes messages, and carries out the
// statements. A case that does not end with closes or status ends with a close frame of the code
// 1000, which the server must answer with the same code and the end of the stream. In every case a
// frame that is not wanted is a failure. "go test -run Protocol/park/7.7" runs the cases of a
// section.
//
//	send OP FLAG... PAYLOAD   sends a frame: text, binary, continuation, close, ping, pong or
//	                          opcode=N. A close frame may have a code before its payload. Flags are
//	                          more (FIN is 0), rsv1, rsv2, rsv3, unmasked, mask=HEX, length16 and
//	                          length64 (the form of the length), announce=N (another length), and
//	                          fragments=N (frames of so many bytes, the first of this operation)
//	raw PAYLOAD               sends bytes
//	want OP FLAG... PAYLOAD   the next frame of the server. With rsv1 it is compressed
//	closes CODE PAYLOAD       the server sends a close frame, with this reason if there is one, and
//	                          ends the stream. "none" is no code
//	request LINE              the request line of the handshake
//	header NAME: VALUE        a field of the handshake; one without a value is left out
//	status N                  the server answers with this status, and the case ends unless it is 101
//	answer NAME: VALUE        the answer has this field; without a value, it has none
//	repeat N                  the statements below it are carried out so often
//
// A payload is an expression of Go with strings: "a"*100 repeats, deflate(x) compresses,
// stored(x) makes blocks that are not compressed, noise(n) and records(n) make n bytes that cannot be
// compressed well, and that can, and x[:n] is a part. "case NAME, for x in A B 1..9" repeats a case
// with $x. Below a section, "server FIELD=N" sets fields of its server, and "header" a field of all its
// requests.
//
//go:embed testdata/protocol
var protocolScripts embed.FS

type protocolCase struct {
	at            string // file and line
	section, name string
	server        string   // fields of the server
	request       string   // its first line, or empty for the usual one
	header        []string // instead of those of the usual request, or in addition
	status        int      // 0 is 101
	answer        []string
	steps         []protocolStep
}

type protocolStep struct {
	at     string
	send   []byte
	want   byte   // the first byte of the frame that the server sends, or 0
	text   string // its payload
	closes bool
	code   Code
	reason *string // or nil for any
}

// sent returns everything that a case sends.
func (c *protocolCase) sent() (b []byte) {
	for _, s := range c.steps {
		b = append(b, s.send...)
	}
	return b
}

// protocolCases returns all cases. It panics with the place of an error in a script.
var protocolCases = sync.OnceValue(func() (all []*protocolCase) {
	files, err := protocolScripts.ReadDir("testdata/protocol")
	if err != nil {
		panic(err)
	}
	slices.SortFunc(files, func(a, b fs.DirEntry) int { return chapterOf(a.Name()) - chapterOf(b.Name()) })
	for _, f := range files {
		text, err := protocolScripts.ReadFile("testdata/protocol/" + f.Name())
		if err != nil {
			panic(err)
		}
		all = append(all, parseProtocol(f.Name(), string(text))...)
	}
	return all
})

func chapterOf(name string) int {
	number, _, _ := strings.Cut(name, "-")
	n, _ := strconv.Atoi(number)
	return n
}

// A scriptLine is a line of a script.
type scriptLine struct{ at, text string }

func (l scriptLine) failf(format string, args ...any) {
	panic(l.at + ": " + fmt.Sprintf(format, args...))
}

func parseProtocol(file, text string) (all []*protocolCase) {
	section, server, quoted := "", "", false
	var header []string
	var head scriptLine
	var block []scriptLine
	flush := func() {
		if head.text != "" {
			all = append(all, expandCase(head, block, protocolCase{section: section, server: server, header: header})...)
		}
		head, block = scriptLine{}, nil
	}
	for i, line := range strings.Split(text, "\n") {
		l := scriptLine{fmt.Sprintf("%s:%d", file, i+1), strings.TrimSpace(line)}
		verb, rest, _ := strings.Cut(l.text, " ")
		switch {
		case l.text == "" || l.text[0] == '#':
		case line[0] == '\t':
			if head.text == "" {
				l.failf("a statement outside of a case")
			}
			block = append(block, l)
		case verb == "section":
			flush()
			section, _, _ = strings.Cut(rest, " ")
			server, header, quoted = "", nil, false
		case verb == "server":
			flush()
			server = rest
		case verb == "header":
			flush()
			header = append(header, rest)
		case verb == ">":
			flush()
			quoted = quoted || strings.HasPrefix(rest, "RFC ")
		case verb == "case":
			flush()
			if head = l; !quoted {
				l.failf("no sentence of an RFC stands above")
			}
			head.text = rest
		default:
			l.failf("unknown line %q", line)
		}
	}
	flush()
	return all
}

// expandCase returns the cases of a block, one for each combination of the values of its loops.
func expandCase(head scriptLine, block []scriptLine, like protocolCase) (all []*protocolCase) {
	name, loops, _ := strings.Cut(head.text, ", for ")
	rounds := []map[string]string{{}}
	for loop := range strings.SplitSeq(loops, ", for ") {
		if loop == "" {
			break
		}
		variable, values, ok := strings.Cut(loop, " in ")
		if !ok {
			head.failf("want for x in")
		}
		var more []map[string]string
		for _, round := range rounds {
			for _, value := range rangeOf(values) {
				next := map[string]string{variable: value}
				for k, v := range round {
					next[k] = v
				}
				more = append(more, next)
			}
		}
		rounds = more
	}
	for _, round := range rounds {
		substitute := func(s string) string {
			for variable, value := range round {
				s = strings.ReplaceAll(s, "$"+variable, value)
			}
			return s
		}
		c := like
		c.at, c.name, c.header = head.at, substitute(name), slices.Clone(like.header)
		if len(rounds) > 1 && c.name == name {
			head.failf("the name does not differ")
		}
		c.parse(block, substitute)
		if n := len(c.steps); (n == 0 || !c.steps[n-1].closes) && (c.status == 0 || c.status == 101) {
			c.steps = append(c.steps, protocolStep{at: head.at, send: closing(CodeNormal, "")},
				protocolStep{at: head.at, closes: true, code: CodeNormal})
		}
		all = append(all, &c)
	}
	return all
}

func rangeOf(values string) (all []string) {
	for _, v := range strings.Fields(values) {
		from, to, ok := strings.Cut(v, "..")
		if !ok {
			all = append(all, v)
			continue
		}
		a, _ := strconv.Atoi(from)
		b, _ := strconv.Atoi(to)
		for ; a <= b; a++ {
			all = append(all, strconv.Itoa(a))
		}
	}
	return all
}

var opcodes = map[string]byte{"continuation": opContinuation, "text": byte(Text), "binary": byte(Binary),
	"close": opClose, "ping": opPing, "pong": opPong}

// parse parses the statements of a case.
func (c *protocolCase) parse(block []scriptLine, substitute func(string) string) {
	for i, l := range block {
		l.text = substitute(l.text)
		if times, ok := strings.CutPrefix(l.text, "repeat "); ok {
			for range l.number(times) {
				c.parse(block[i+1:], substitute)
			}
			return
		}
		c.statement(l)
	}
}

func (c *protocolCase) statement(l scriptLine) {
	verb, rest, _ := strings.Cut(l.text, " ")
	s := protocolStep{at: l.at}
	switch verb {
	case "request":
		c.request = rest
		return
	case "header":
		c.header = append(c.header, rest)
		return
	case "answer":
		c.answer = append(c.answer, rest)
		return
	case "status":
		c.status = int(l.number(rest))
		return
	case "raw":
		s.send = []byte(l.payload(rest))
	case "send":
		s.send = l.frames(rest)
	case "want":
		op, rest := l.word(rest)
		s.want = fin | opcodes[op]
		if _, ok := opcodes[op]; !ok {
			l.failf("unknown operation %q", op)
		}
		if after, ok := strings.CutPrefix(rest, "rsv1 "); ok {
			s.want, rest = s.want|rsv1, after
		}
		s.text = l.payload(rest)
	case "closes":
		code, reason := l.word(rest)
		if s.closes, s.code = true, CodeNone; code != "none" {
			s.code = Code(l.number(code))
		}
		if reason != "" {
			reason = l.payload(reason)
			s.reason = &reason
		}
	default:
		l.failf("unknown verb %q", verb)
	}
	c.steps = append(c.steps, s)
}

func (l scriptLine) word(s string) (word, rest string) {
	word, rest, _ = strings.Cut(s, " ")
	return word, rest
}

func (l scriptLine) number(s string) uint64 {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		l.failf("%v", err)
	}
	return n
}

// A clientFrame is what a send statement says of a frame.
type clientFrame struct {
	first    byte
	unmasked bool
	mask     [4]byte
	form     int // bytes of the length after the second byte, or -1 for the shortest
	length   int // that the header announces, or -1 for that of the payload
	payload  string
}

// bytes returns the frame.
func (f clientFrame) bytes() []byte {
	n, form := uint64(len(f.payload)), f.form
	if f.length >= 0 {
		n = uint64(f.length)
	}
	switch {
	case form >= 0:
	case n > 0xffff:
		form = 8
	case n > 125:
		form = 2
	default:
		form = 0
	}
	b := []byte{f.first, map[int]byte{0: byte(n), 2: 126, 8: 127}[form]}
	for i := form - 1; i >= 0; i-- {
		b = append(b, byte(n>>(8*i)))
	}
	if f.unmasked {
		return append(b, f.payload...)
	}
	b[1] |= 0x80
	b = append(b, f.mask[:]...)
	for i := range len(f.payload) {
		b = append(b, f.payload[i]^f.mask[i&3])
	}
	return b
}

// frames returns the frames of a send statement.
func (l scriptLine) frames(text string) []byte {
	name, rest := l.word(text)
	op, known := opcodes[name]
	if n, ok := strings.CutPrefix(name, "opcode="); ok {
		op, known = byte(l.number(n)), true
	}
	if !known {
		l.failf("unknown operation %q", name)
	}
	f := clientFrame{first: fin | op, mask: [4]byte{0x12, 0xfe, 0x56, 0x78}, form: -1, length: -1}
	size := 0
	for rest != "" {
		word, after := l.word(rest)
		key, value, _ := strings.Cut(word, "=")
		switch {
		case key == "more":
			f.first &^= fin
		case key == "rsv1" || key == "rsv2" || key == "rsv3":
			f.first |= 0x80 >> (key[3] - '0')
		case key == "unmasked":
			f.unmasked = true
		case key == "mask":
			for i := range f.mask {
				f.mask[i] = byte(l.number("0x" + value[2*i:2*i+2]))
			}
		case key == "length16" || key == "length64":
			f.form = int(l.number(key[6:])) / 8
		case key == "announce":
			f.length = int(l.number(value))
		case key == "fragments":
			size = int(l.number(value))
		case op == opClose && f.payload == "" && word[0] >= '0' && word[0] <= '9':
			n := l.number(word)
			f.payload = string([]byte{byte(n >> 8), byte(n)})
		default:
			f.payload += l.payload(rest)
			after = ""
		}
		rest = after
	}
	if size == 0 {
		return f.bytes()
	}
	var b []byte
	for whole := f; ; f.first = last {
		n := min(size, len(whole.payload))
		f.payload, whole.payload = whole.payload[:n], whole.payload[n:]
		if whole.payload == "" {
			f.first |= fin
			return append(b, f.bytes()...)
		}
		f.first &^= fin
		b = append(b, f.bytes()...)
	}
}

// payload evaluates an expression.
func (l scriptLine) payload(text string) string {
	e, err := parser.ParseExpr(text)
	if err != nil {
		l.failf("%s: %v", text, err)
	}
	s, ok := l.evaluate(e).(string)
	if !ok {
		l.failf("%s is no string", text)
	}
	return s
}

func (l scriptLine) evaluate(e ast.Expr) any {
	text := func(e ast.Expr) string {
		s, ok := l.evaluate(e).(string)
		if !ok {
			l.failf("want a string")
		}
		return s
	}
	number := func(e ast.Expr) int {
		n, ok := l.evaluate(e).(int)
		if !ok {
			l.failf("want a number")
		}
		return n
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		return l.evaluate(e.X)
	case *ast.BasicLit:
		if e.Kind == token.INT {
			return int(l.number(e.Value))
		}
		s, err := strconv.Unquote(e.Value)
		if err != nil {
			l.failf("%s: %v", e.Value, err)
		}
		return s
	case *ast.BinaryExpr:
		switch e.Op {
		case token.ADD:
			return text(e.X) + text(e.Y)
		case token.MUL:
			return strings.Repeat(text(e.X), number(e.Y))
		}
	case *ast.SliceExpr:
		s, from, to := text(e.X), 0, 0
		if e.Low != nil {
			from = number(e.Low)
		}
		if to = len(s); e.High != nil {
			to = number(e.High)
		}
		return s[from:to]
	case *ast.CallExpr:
		switch name := e.Fun.(*ast.Ident).Name; name {
		case "deflate":
			return squeeze(text(e.Args[0]))
		case "stored":
			return stored(text(e.Args[0]))
		case "noise":
			return noise(number(e.Args[0]))
		case "records":
			return records(number(e.Args[0]))
		}
	}
	l.failf("cannot evaluate %T", e)
	return nil
}

// stored returns blocks of DEFLATE that are not compressed.
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

// noise returns the same n bytes at every call, which cannot be compressed.
func noise(n int) string {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return string(b)
}

// records returns the same text of n bytes at every call, which has much that repeats.
func records(n int) string {
	random := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, `{"topic":"orders.%d","id":"%x","data":"Ünïcode 𝄞"}`, random.IntN(100), random.Uint32())
	}
	text := strings.ToValidUTF8(b.String()[:n], "")
	return text + strings.Repeat(".", n-len(text))
}
