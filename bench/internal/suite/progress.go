package suite

import (
	"fmt"
	"io"
	"time"
)

// seldom is how often progress is told where it cannot be told in place.
const seldom = 15 * time.Second

// A Progress tells what is being done, in place on a terminal, and elsewhere in a line now and then. The zero
// value is silent.
type Progress struct {
	W        io.Writer
	Terminal bool
	last     time.Time
}

func (p *Progress) say(what string, left time.Duration) {
	if p.W == nil {
		return
	}
	if left > 0 {
		what += "; about " + Rough(left) + " left"
	}
	switch now := time.Now(); {
	case p.Terminal:
		fmt.Fprint(p.W, "\r\x1b[K"+what)
	case now.Sub(p.last) >= seldom:
		p.last = now
		fmt.Fprintln(p.W, what)
	}
}

// Clear makes room for a line of its own.
func (p *Progress) Clear() {
	if p.W != nil && p.Terminal {
		fmt.Fprint(p.W, "\r\x1b[K")
	}
	p.last = time.Now()
}

// Rough is a time as an estimate tells it.
func Rough(d time.Duration) string {
	if d < 2*time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}

func (e *Env) progress(format string, args ...any) {
	e.Progress.say(fmt.Sprintf(format, args...), e.plan.left())
}

func (e *Env) warn(format string, args ...any) {
	if e.Warnings != nil {
		fmt.Fprintf(e.Warnings, format+"\n", args...)
	}
}
