package conformance

import (
	"bytes"
	"sync"
)

// A ledger has what has arrived at each socket since a statement last asked.
type ledger struct {
	mu   sync.Mutex
	data map[handle][]byte
}

// add adds to what has arrived at a socket, and returns all of it.
func (l *ledger) add(h handle, data []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data[h] = append(l.data[h], data...)
	return l.data[h]
}

func (l *ledger) forget(h handle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.data, h)
}

// text returns the bytes that words mean: texts, each perhaps with how often it comes, or what an
// operation has sent.
func (r *run) text(words []string) []byte {
	var all []byte
	for i, word := range words {
		var text []byte
		if o := r.ops[word]; o != nil {
			n, _ := o.o.Result()
			text = o.b[:n]
		} else if word[0] == '"' {
			text = []byte(r.string(word))
			if i+1 < len(words) && words[i+1][0] != '"' {
				text = bytes.Repeat(text, r.number(words[i+1]))
			}
		}
		if all == nil {
			all = text // which may be long
		} else {
			all = append(all, text...)
		}
	}
	return all
}

// receive receives once, into a buffer of a size.
func (r *run) receive(a []string) {
	what, want := outcome(a)
	b := make([]byte, r.number(what[1]))
	h := r.handle(what[0])
	n, err := h.(interface{ Recv([]byte) (int, error) }).Recv(b)
	r.errors(err, want)
	r.arrived.add(h, b[:n])
	if len(what) > 2 && string(b[:n]) != r.string(what[2]) {
		r.Fatalf("want %s, got %q", what[2], b[:n])
	}
}

// drain receives everything.
func (r *run) drain(a []string) {
	what, want := outcome(a)
	s := r.socket(what[0])
	data, err := receiveAll(s)
	r.errors(err, want)
	r.arrived.add(s, data)
	if len(what) > 1 && string(data) != r.string(what[1]) {
		r.Fatalf("want %s, got %q", what[1], data)
	}
}

// received waits until a socket has received something, since the last such statement, and nothing
// else. It repeats its block, which receives, or drains the socket itself.
func (r *run) received(a []string) {
	s, want, body := r.socket(a[0]), r.text(a[1:]), r.stmt.block
	var got []byte
	r.env.until("it arrives", func() bool {
		var data []byte
		var err error
		if r.block(body); len(body) == 0 {
			if data, err = receiveAll(s); err != endOfStream {
				r.must(err)
			}
		}
		got = r.arrived.add(s, data)
		return len(got) >= len(want)
	})
	if !bytes.Equal(got, want) {
		r.Fatalf("want %s, got %d bytes, %.80q", a[1:], len(got), got)
	}
	r.arrived.forget(s)
}
