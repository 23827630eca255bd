package access

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// The levels of what clients cause.
const (
	levelLimit   = slog.LevelWarn  // a limit was reached
	levelBadPeer = slog.LevelDebug // a client has sent what it must not
)

const (
	maxLines   = 10 // of a message, in each linePeriod
	linePeriod = time.Second
)

// A Log writes the lines that clients can cause: in each second the first ten of a message. The
// others are counted, and their number is written at the end of the second.
type Log struct {
	name   string
	logger *slog.Logger

	mu     sync.Mutex
	quotas map[string]*lineQuota // by message
}

// A lineQuota counts the lines of one message in a second.
type lineQuota struct {
	level slog.Level // of the first line that was left out
	lines int
	timer *time.Timer // ends the second
}

// Log writes a line. The message is a constant, because each has a limit of its own.
func (l *Log) Log(level slog.Level, message string, args ...any) {
	if l.logger.Enabled(context.Background(), level) && l.allow(level, message) {
		l.write(level, message, args...)
	}
}

func (l *Log) write(level slog.Level, message string, args ...any) {
	l.logger.Log(context.Background(), level, "gateway: "+message, append(args, "name", l.name)...)
}

// allow counts a line, and reports whether it may be written.
func (l *Log) allow(level slog.Level, message string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.quotas[message]
	if q == nil {
		if l.quotas == nil {
			l.quotas = make(map[string]*lineQuota)
		}
		q = &lineQuota{timer: time.AfterFunc(linePeriod, func() { l.end(message) })}
		l.quotas[message] = q
	}
	if q.lines++; q.lines == maxLines+1 {
		q.level = level
	}
	return q.lines <= maxLines
}

// end ends the second of a message.
func (l *Log) end(message string) {
	l.mu.Lock()
	q := l.quotas[message]
	delete(l.quotas, message)
	l.mu.Unlock()
	if q == nil {
		return
	}
	q.timer.Stop()
	if q.lines > maxLines {
		l.write(q.level, message, "suppressed", q.lines-maxLines)
	}
}

// Flush ends the current seconds.
func (l *Log) Flush() {
	l.mu.Lock()
	var messages []string
	for m := range l.quotas {
		messages = append(messages, m)
	}
	l.mu.Unlock()
	for _, m := range messages {
		l.end(m)
	}
}
