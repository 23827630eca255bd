package suite

import (
	"fmt"
	"io"
	"time"
)

// seldom is the interval of progress lines if the output is not a terminal.
const seldom = 15 * time.Second

// A Progress prints what is being done: on a terminal in place, elsewhere in an occasional line. The zero value prints
// nothing.
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

// Clear clears the line on a terminal.
func (p *Progress) Clear() {
	if p.W != nil && p.Terminal {
		fmt.Fprint(p.W, "\r\x1b[K")
	}
	p.last = time.Now()
}

// Rough formats a duration as an estimate.
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
