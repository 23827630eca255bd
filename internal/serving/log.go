package serving

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/serving/clock"
)

// The levels of what peers cause. A panic is logged as an error.
const (
	LevelLimit   = slog.LevelWarn  // a limit was reached
	LevelBadPeer = slog.LevelDebug // a peer has sent what it must not, or has stopped
)

// A Log writes the log lines of a server. Peers can cause lines, so in each second the first ten of
// a message are logged. The others are counted, and their number is logged at the end of the
// second. The fields must not be changed after the first line.
type Log struct {
	Prefix string              // what precedes each message, such as "park: "
	Name   string              // of the server; a line has it as "name" unless it is empty
	Logger func() *slog.Logger // for each line; nil, or a nil result, is slog.Default

	panics atomic.Uint64

	mu     sync.Mutex
	quotas map[string]*quota // by message
}

const (
	quotaLines  = 10
	quotaPeriod = time.Second
)

// A quota counts the lines of one message.
type quota struct {
	from  time.Time // begin of the current second
	lines int       // in it
	over  int       // lines in it that were not logged
	level slog.Level
	timer clock.Timer // ends the second; nil unless over is positive
}

// Log logs a line. The message is a constant, because each has a limit of its own. The keys are
// remote, err, panic, stack, name and retry_in, and others for what these do not name.
func (l *Log) Log(level slog.Level, message string, args ...any) {
	if logger := l.logger(); logger.Enabled(context.Background(), level) && l.allow(level, message) {
		l.write(level, message, args...)
	}
}

func (l *Log) logger() *slog.Logger {
	if l.Logger != nil {
		if logger := l.Logger(); logger != nil {
			return logger
		}
	}
	return slog.Default()
}

func (l *Log) write(level slog.Level, message string, args ...any) {
	if l.Name != "" {
		args = append(args, "name", l.Name)
	}
	l.logger().Log(context.Background(), level, l.Prefix+message, args...)
}

// allow counts a line, and reports whether it may be logged.
func (l *Log) allow(level slog.Level, message string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.quotas[message]
	if q == nil {
		if l.quotas == nil {
			l.quotas = make(map[string]*quota)
		}
		q = new(quota)
		l.quotas[message] = q
	}
	current := clock.Current()
	now := current.Now()
	if q.over == 0 && now.Sub(q.from) >= quotaPeriod {
		q.from, q.lines = now, 0
	}
	if q.lines++; q.lines <= quotaLines {
		return true
	}
	if q.over++; q.over == 1 {
		q.level = level
		q.timer = current.AfterFunc(q.from.Add(quotaPeriod).Sub(now), func() { l.flush(message) })
	}
	return false
}

// flush ends the second of a message: it logs how many lines were not logged, if there are some.
func (l *Log) flush(message string) {
	l.mu.Lock()
	q := l.quotas[message]
	over, level := q.over, q.level
	if over > 0 {
		q.timer.Stop()
		q.over, q.lines, q.timer = 0, 0, nil
	}
	l.mu.Unlock()
	if over > 0 {
		l.write(level, message, "suppressed", over)
	}
}

// Flush logs what the current seconds have suppressed. A server calls it when it has ended.
func (l *Log) Flush() {
	l.mu.Lock()
	messages := slices.Collect(maps.Keys(l.quotas))
	l.mu.Unlock()
	for _, m := range messages {
		l.flush(m)
	}
}
