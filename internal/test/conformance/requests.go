package conformance

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"weak"

	"github.com/socknotify/socknotify"
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

// An action is an operation of a script that is not started yet. It can be started as a request of
// a batch, and by its own function.
type action struct {
	request opEntry
	start   func() error
	buffer  []byte
}

// transfers are the operations with a socket and a buffer.
var transfers = map[string]struct {
	request func(*sock.Socket, any, []byte, *op) opEntry
	start   func(*port, *sock.Socket, any, []byte, *op) error
}{
	"Recv":     {overlapped.RecvRequest[any], overlapped.Recv[any]},
	"RecvFrom": {overlapped.RecvFromRequest[any], overlapped.RecvFrom[any]},
	"Send":     {overlapped.SendRequest[any], overlapped.Send[any]},
}

// action makes an operation ready of its words.
func (r *run) action(words []string) (a action) {
	if words[0] == "Nothing" {
		return action{request: opEntry{Result: errOld}}
	}
	if len(words) < 3 {
		r.Fatalf("want an operation, its name and its socket")
	}
	p, name, rest := r.p(), words[1], words[3:]
	key, o := r.key(name), r.op(name)
	if words[0] == "ReadAt" || words[0] == "WriteAt" {
		f, b, offset := r.file(words[2]), r.buffer(rest[:1]), int64(r.number(rest[1]))
		start := map[string]func(*port, *os.File, any, []byte, int64, *op) error{
			"ReadAt": overlapped.ReadAt[any], "WriteAt": overlapped.WriteAt[any],
		}[words[0]]
		return action{start: func() error { return start(p, f, key, b, offset, o) }, buffer: b}
	}
	s := r.sockOf(words[2])
	if t := transfers[words[0]]; t.start != nil {
		b := r.buffer(rest)
		a = action{t.request(s, key, b, o), func() error { return t.start(p, s, key, b, o) }, b}
	}
	switch words[0] {
	case "SendTo":
		to, b := r.socket(rest[0]).LocalAddr(), r.buffer(rest[1:])
		a.request, a.buffer = overlapped.SendToRequest[any](s, key, b, to, o), b
		a.start = func() error { return overlapped.SendTo(p, s, key, b, to, o) }
	case "RecvPooled":
		pool := r.pools[rest[0]]
		a.request = overlapped.RecvPooledRequest[any](s, key, pool, o)
		a.start = func() error { return overlapped.RecvPooled(p, s, key, pool, o) }
	case "AcceptEx":
		into := r.into(rest[0])
		a.request = overlapped.AcceptRequest[any](s, key, into, o)
		a.start = func() error { return overlapped.Accept(p, s, key, into, o) }
	case "Connect":
		var to netip.AddrPort
		if rest[0] == "nowhere" {
			to = r.nowhere(sock.TCP4)
		} else {
			to = r.socket(rest[0]).LocalAddr()
		}
		a.request = overlapped.ConnectRequest[any](s, key, to, o)
		a.start = func() error { return overlapped.Connect(p, s, key, to, o) }
	}
	a.request.Result = errOld
	return a
}

// buffer makes an operation's buffer of a text, or of a size. That of size 0 is nil.
func (r *run) buffer(words []string) []byte {
	if len(words) == 0 {
		r.Fatalf("want a size or a text")
	}
	if words[0][0] == '"' {
		return r.text(words)
	}
	if n := r.number(words[0]); n > 0 {
		return make([]byte, n)
	}
	return nil
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

// completed waits for completions, in any order: each an operation's name, and then the number of
// bytes, or the text that was received, or errors. With "beside-posts" it drops posts.
func (r *run) completed(a []string) {
	besidePosts := a[0] == "beside-posts"
	if besidePosts {
		a = a[1:]
	}
	want := lists(a, ",")
	for range len(want) {
		got := r.next()
		for besidePosts && got.Kind() == socknotify.KindPosted {
			got = r.next()
		}
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
		r.arrived.add(r.handle(o.from), o.b[:n])
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
