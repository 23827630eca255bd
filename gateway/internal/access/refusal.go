package access

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/sse"
)

// A Denial is an answer to a client that does not get what it asks for.
type Denial struct {
	Status int // of HTTP
	Text   string
	Wait   time.Duration // before the next attempt, if that makes sense
}

func (f *Denial) Error() string { return f.Text }

var ErrRate = errors.New("gateway: more than the rate of a client")

// Later returns the denial of what may work later.
func Later(err error) *Denial {
	return &Denial{http.StatusServiceUnavailable, err.Error(), time.Second}
}

func NotAllowed(topic string) *Denial {
	return &Denial{Status: http.StatusForbidden, Text: fmt.Sprintf("topic %q: not allowed", topic)}
}

// Count counts and logs a denial.
func (c *Control) Count(f *Denial, remote string) {
	switch f.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		c.Denied.Add(1)
	case http.StatusTooManyRequests:
		c.Log.Log(levelLimit, "client refused", "limit", "rate", "remote", remote)
		fallthrough
	case http.StatusServiceUnavailable:
		c.Refused.Add(1)
	default:
		c.Rejected.Add(1)
		c.Log.Log(levelBadPeer, "request rejected", "err", f.Text, "remote", remote)
	}
}

// Refuse answers a request with a denial.
func (c *Control) Refuse(w http.ResponseWriter, r *http.Request, f *Denial) {
	c.Count(f, r.RemoteAddr)
	switch {
	case f.Status == http.StatusServiceUnavailable:
		ComeBack(w, r, c.Config.Retry, errors.New(f.Text))
		return
	case f.Wait > 0:
		seconds := int64((f.Wait + time.Second - 1) / time.Second)
		answerLater(w, r, f.Status, seconds, f.Text)
		return
	}
	http.Error(w, f.Text, f.Status)
}

// Reject answers a request that is malformed or too large.
func (c *Control) Reject(w http.ResponseWriter, r *http.Request, status int, reason string) {
	c.Refuse(w, r, &Denial{Status: status, Text: reason})
}

// Unavailable answers that the client should come back.
func (c *Control) Unavailable(w http.ResponseWriter, r *http.Request, err error) {
	c.Refused.Add(1)
	ComeBack(w, r, c.Config.Retry, err)
}

// ComeBack answers that the client should come back, after a time that differs between clients.
func ComeBack(w http.ResponseWriter, r *http.Request, retry time.Duration, err error) {
	seconds := max(int64(retry.Seconds()), 1)
	seconds += rand.Int64N(seconds + 1)
	answerLater(w, r, http.StatusServiceUnavailable, seconds, err.Error())
}

// streamPaths are those of Server-Sent Events.
var streamPaths = []string{"/events", "/.well-known/mercure"}

// answerLater answers that the client should come back after some seconds. A browser's EventSource
// ends for good at an answer that is not 200. So it gets a stream that says when to come back, and
// ends.
func answerLater(w http.ResponseWriter, r *http.Request, status int, seconds int64, text string) {
	h := w.Header()
	h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	if slices.Contains(streamPaths, r.URL.Path) && r.Method == http.MethodGet &&
		strings.Contains(r.Header.Get("Accept"), sse.ContentType) {
		h.Set("Content-Type", sse.ContentType)
		h.Set("Cache-Control", "no-store")
		fmt.Fprintf(w, ": %s\nretry: %d\n\n", text, seconds*1000)
		return
	}
	http.Error(w, text, status)
}

// DenialOf returns the answer to a client whose event Publish has refused with an error.
func DenialOf(err error) *Denial {
	switch {
	case errors.Is(err, stream.ErrTooLong), errors.As(err, new(*http.MaxBytesError)):
		return &Denial{Status: http.StatusRequestEntityTooLarge, Text: stream.ErrTooLong.Error()}
	case errors.Is(err, stream.ErrKeyReused):
		return &Denial{Status: http.StatusUnprocessableEntity, Text: err.Error()}
	case errors.Is(err, stream.ErrUnavailable):
		return &Denial{http.StatusServiceUnavailable, err.Error(), time.Second}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Denial{Status: http.StatusRequestTimeout, Text: "the event did not come in time"}
	default:
		return &Denial{Status: http.StatusBadRequest, Text: err.Error()}
	}
}
