package conformance

import (
	"errors"
	"os"
	"slices"
	"weak"

	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

// An operation is an overlapped operation of a script. Its name is its key.
type operation struct {
	o      op
	name   string
	port   string
	from   string // the socket that it receives from
	b      []byte
	buffer weak.Pointer[byte]
}

func (r *run) operation(name string) *operation {
	o := r.ops[name]
	if o == nil {
		o = &operation{name: name}
		r.ops[name] = o
	}
	return o
}

// owns keeps what an operation that was started has.
func (o *operation) owns(port string, words []string, b []byte) {
	o.port, o.b, o.from = port, b, ""
	if len(b) > 0 {
		o.buffer = weak.Make(&b[0])
	}
	if words[0] == "Recv" {
		o.from = words[2]
	}
}

// op returns the Op of a name. That of "nil" is nil.
func (r *run) op(name string) *op {
	if name == "nil" {
		r.operation(name)
		return nil
	}
	return &r.operation(name).o
}

// sockOf returns the socket of a name. That of "nil" is nil.
func (r *run) sockOf(name string) *sock.Socket {
	if name == "nil" {
		return nil
	}
	return r.socket(name).Socket
}

// request makes the request of an operation of its words, and the buffer.
func (r *run) request(words []string) (opEntry, []byte) {
	if words[0] == "Nothing" {
		return opEntry{Result: errOld}, nil
	}
	if len(words) < 3 {
		r.Fatalf("want an operation, its name and its socket")
	}
	rest := words[3:]
	r.operation(words[1])
	key := r.key(words[1])
	var fresh []byte
	buffer := func() []byte {
		if len(rest) == 0 {
			r.Fatalf("%s needs a size or a text", words[0])
		}
		if rest[0][0] == '"' {
			text := rest
			if words[0] == "WriteAt" {
				text = rest[:1] // an offset follows
			}
			fresh = r.text(text)
		} else if n := r.number(rest[0]); n > 0 {
			fresh = make([]byte, n)
		}
		return fresh
	}
	s := func() *sock.Socket { return r.sockOf(words[2]) }
	o := r.op(words[1])
	var q opEntry
	switch words[0] {
	case "Recv":
		q = overlapped.RecvRequest[any](s(), key, buffer(), o)
	case "RecvFrom":
		q = overlapped.RecvFromRequest[any](s(), key, buffer(), o)
	case "RecvPooled":
		q = overlapped.RecvPooledRequest[any](s(), key, r.pools[rest[0]], o)
	case "Send":
		q = overlapped.SendRequest[any](s(), key, buffer(), o)
	case "SendTo":
		to := r.socket(rest[0]).LocalAddr()
		rest = rest[1:]
		q = overlapped.SendToRequest[any](s(), key, buffer(), to, o)
	case "ReadAt", "WriteAt":
		buffer()
	case "AcceptEx":
		q = overlapped.AcceptRequest[any](s(), key, r.into(rest[0]), o)
	case "Connect":
		if rest[0] == "nowhere" {
			q = overlapped.ConnectRequest[any](s(), key, r.nowhere(sock.TCP4), o)
		} else {
			q = overlapped.ConnectRequest[any](s(), key, r.socket(rest[0]).LocalAddr(), o)
		}
	}
	q.Result = errOld
	return q, fresh
}

// startOne starts an operation by its own function.
func (r *run) startOne(p *port, what []string, q opEntry, b []byte) error {
	o := r.op(what[1])
	key := r.key(what[1])
	switch what[0] {
	case "ReadAt":
		return overlapped.ReadAt(p, r.file(what[2]), key, b, int64(r.number(what[4])), o)
	case "WriteAt":
		return overlapped.WriteAt(p, r.file(what[2]), key, b, int64(r.number(what[4])), o)
	}
	s := r.sockOf(what[2])
	switch what[0] {
	case "Recv":
		return overlapped.Recv(p, s, key, b, o)
	case "RecvFrom":
		return overlapped.RecvFrom(p, s, key, b, o)
	case "RecvPooled":
		return overlapped.RecvPooled(p, s, key, r.pools[what[3]], o)
	case "Send":
		return overlapped.Send(p, s, key, b, o)
	case "SendTo":
		return overlapped.SendTo(p, s, key, b, r.socket(what[3]).LocalAddr(), o)
	case "AcceptEx":
		return overlapped.Accept(p, s, key, r.into(what[3]), o)
	case "Connect":
		if what[3] != "nowhere" {
			return overlapped.Connect(p, s, key, r.socket(what[3]).LocalAddr(), o)
		}
	}
	list := []opEntry{q}
	if n, err := overlapped.Process(p, list, nil, 0); n != 0 || err != nil {
		r.Fatalf("overlapped.Process without entries = %d, %v; want 0, nil", n, err)
	}
	return list[0].Result
}

// A scriptFile is a file as a script's socket: it is closed by name.
type scriptFile struct{ *os.File }

func (scriptFile) Handle() uintptr { return 0 }

// file returns the file of a name. That of "nil" is nil.
func (r *run) file(name string) *os.File {
	if name == "nil" {
		return nil
	}
	f, ok := r.handle(name).(scriptFile)
	if !ok {
		r.Fatalf("%s is no file", name)
	}
	return f.File
}

// startFiles starts operations on files, which batches have none of.
func (r *run) startFiles(words []string) {
	r.Helper()
	for _, part := range lists(words, ";") {
		r.start(part)
	}
}

// completed waits for completions, in any order: each an operation's name, and then the number of
// bytes, or the text that was received, or errors.
func (r *run) completed(a []string) {
	want := lists(a, ",")
	for range len(want) {
		got := r.next()
		i := slices.IndexFunc(want, func(w []string) bool {
			return len(w) > 0 && r.ops[w[0]] != nil && got.Key == r.key(w[0])
		})
		if i < 0 {
			r.Fatalf("got %s", noteTexts([]note{got}))
		}
		r.completion(got, want[i])
		want = slices.Delete(want, i, i+1)
	}
}

func (r *run) completion(got note, want []string) {
	o := r.ops[want[0]]
	n, err := r.env.result(got, r.key(o.name), &o.o)
	if o.from != "" && n > 0 {
		r.arrived.add(r.handle(o.from), string(o.b[:n]))
	}
	if i := slices.Index(want, "or"); i >= 0 { // a result without an error, or an error
		if err != nil {
			want = slices.Delete(slices.Clone(want), 1, i+1)
		} else {
			want = want[:i]
		}
	}
	var names []string
	for _, word := range want[1:] {
		switch {
		case word[0] == '"':
			b := o.o.Buffer()
			if b == nil && n <= len(o.b) {
				b = o.b[:n]
			}
			if string(b) != r.string(word) {
				r.Fatalf("want %s, got %q, %v", word, b, err)
			}
		case word[0] >= '0' && word[0] <= '9':
			if n != r.number(word) {
				r.Fatalf("want %s bytes, got %d, %v", word, n, err)
			}
		case word == "part":
			if n == 0 || n == len(o.b) {
				r.Fatalf("want a part of %d bytes, got %d, %v", len(o.b), n, err)
			}
		default:
			names = append(names, word)
		}
	}
	r.errors(err, names)
	var of *overlapped.Error
	if err != nil && err != endOfStream && !errors.As(err, &of) {
		r.Fatalf("completed with a %T: %v", err, err)
	}
	if o.name[0] == '@' {
		o.b = nil // of which nothing else has a pointer
	}
}
