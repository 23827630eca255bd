package client

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// A Publisher publishes over one WebSocket. It opens it at the first event, and at another node
// when it is lost. Large events are published by Client.Publish. Its methods may be called
// concurrently. The field must be set before the first call. Close must be called at the end.
type Publisher struct {
	Client *Client

	mu   sync.Mutex
	link *link
	turn int
}

// maxMessage is the number of bytes of an event, as JSON, that the gateway takes over a WebSocket
// in any case.
const maxMessage = 4 << 10

// ackTimeout is the time after which a WebSocket on which an event is not answered is lost.
const ackTimeout = 10 * time.Second

// Publish publishes an event, as Client.Publish does.
func (p *Publisher) Publish(ctx context.Context, topic, data, key string) (Receipt, error) {
	c := p.Client
	if c == nil || len(c.Nodes) == 0 {
		return Receipt{}, errIncomplete
	}
	key = cmp.Or(key, crand.Text())
	event, err := json.Marshal(publication{topic, data, key})
	switch {
	case err != nil:
		return Receipt{}, &RefusedError{0, err.Error()}
	case len(event) > maxMessage:
		return c.Publish(ctx, topic, data, key)
	}
	for failures := 0; ; failures++ {
		l, err := p.open(ctx)
		if err == nil {
			var r Receipt
			if r, err = l.publish(ctx, event); err == nil {
				return r, nil
			}
		}
		if ctx.Err() != nil {
			return Receipt{}, context.Cause(ctx)
		}
		if errors.As(err, new(*RefusedError)) {
			return Receipt{}, err
		}
		if err := c.pause(ctx, failures, err); err != nil {
			return Receipt{}, err
		}
	}
}

// Close closes the WebSocket. Events that are not answered yet are published again by their calls,
// unless their contexts are done.
func (p *Publisher) Close() {
	p.mu.Lock()
	l := p.link
	p.link = nil
	p.mu.Unlock()
	if l != nil {
		l.close()
		<-l.lost
	}
}

// open returns the WebSocket. If there is none, it opens one.
func (p *Publisher) open(ctx context.Context) (*link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link != nil {
		select {
		case <-p.link.lost:
		default:
			return p.link, nil
		}
	}
	if p.turn == 0 {
		p.turn = rand.IntN(len(p.Client.Nodes))
	}
	p.turn++
	node := p.Client.Nodes[p.turn%len(p.Client.Nodes)]
	l, err := p.Client.dial(ctx, node)
	if err == nil {
		p.link = l
	}
	return l, err
}

// dial opens a WebSocket without topics. ctx is for the handshake alone.
func (c *Client) dial(ctx context.Context, node string) (*link, error) {
	ctx, done := context.WithTimeout(ctx, ackTimeout)
	defer done()
	living, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	nonce := make([]byte, 16)
	crand.Read(nonce)
	r, err := http.NewRequestWithContext(living, http.MethodGet, node+"/socket", nil)
	if err != nil {
		cancel(nil)
		return nil, &RefusedError{0, err.Error()}
	}
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket",
		"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": base64.StdEncoding.EncodeToString(nonce)} {
		r.Header.Set(name, value)
	}
	answer, err := c.send(r)
	stop()
	if err != nil {
		cancel(nil)
		return nil, err
	}
	rw, ok := answer.Body.(io.ReadWriteCloser)
	if answer.StatusCode != http.StatusSwitchingProtocols || !ok {
		answer.Body.Close()
		cancel(nil)
		return nil, errNoSocket
	}
	l := &link{rw: rw, end: func() { cancel(nil) }, waiting: make(map[uint64]chan reply),
		lost: make(chan struct{})}
	go l.read()
	return l, nil
}

var (
	errNoSocket = errors.New("gateway: the node has not answered with a WebSocket")
	errLost     = errors.New("gateway: the connection was lost")
)

// A link is an open WebSocket.
type link struct {
	rw   io.ReadWriteCloser
	end  func()
	lost chan struct{} // closed when the WebSocket has ended

	writing sync.Mutex // held for each frame

	mu      sync.Mutex
	ref     uint64
	waiting map[uint64]chan reply // by ref; nil after the end
}

// A publication is an event to publish, a reply the gateway's answer to it.
type publication struct {
	Topic string `json:"topic"`
	Data  string `json:"data"`
	Key   string `json:"key"`
}

type reply struct {
	Ref       uint64
	Published *Receipt
	Error     *struct {
		Status int
		Text   string
		Retry  int64
	}
}

// Write writes a frame.
func (l *link) Write(b []byte) (int, error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.rw.Write(b)
}

// Read reads what the gateway has sent.
func (l *link) Read(b []byte) (int, error) { return l.rw.Read(b) }

func (l *link) close() {
	l.rw.Close()
	l.end()
}

// read hands replies to the calls that wait for them, until the WebSocket has ended.
func (l *link) read() {
	defer close(l.lost)
	for {
		b, _, err := wsutil.ReadServerData(l) // answers pings
		if err != nil {
			break
		}
		var r reply
		if json.Unmarshal(b, &r) != nil {
			break
		}
		l.mu.Lock()
		ch := l.waiting[r.Ref]
		delete(l.waiting, r.Ref)
		l.mu.Unlock()
		if ch != nil {
			ch <- r
		}
	}
	l.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ch := range l.waiting {
		close(ch)
	}
	l.waiting = nil
}

// publish sends an event, and waits for the answer.
func (l *link) publish(ctx context.Context, event json.RawMessage) (Receipt, error) {
	ch := make(chan reply, 1)
	l.mu.Lock()
	if l.waiting == nil {
		l.mu.Unlock()
		return Receipt{}, errLost
	}
	l.ref++
	ref := l.ref
	l.waiting[ref] = ch
	l.mu.Unlock()
	text, err := json.Marshal(map[string]any{"ref": ref, "publish": event})
	if err != nil {
		return Receipt{}, &RefusedError{0, err.Error()}
	}
	late := time.AfterFunc(ackTimeout, l.close)
	defer late.Stop()
	frame, err := ws.CompileFrame(ws.MaskFrameInPlace(ws.NewTextFrame(text)))
	if err == nil {
		_, err = l.Write(frame)
	}
	if err != nil {
		l.close()
		return Receipt{}, err
	}
	select {
	case r, ok := <-ch:
		switch {
		case !ok:
			return Receipt{}, errLost
		case r.Published != nil:
			return *r.Published, nil
		case r.Error == nil:
			return Receipt{}, errNoSocket
		case isLater(r.Error.Status):
			return Receipt{}, &busyError{r.Error.Text, time.Duration(r.Error.Retry) * time.Millisecond}
		}
		return Receipt{}, &RefusedError{r.Error.Status, r.Error.Text}
	case <-ctx.Done():
		return Receipt{}, context.Cause(ctx)
	}
}
