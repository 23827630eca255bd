package words

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
)

// Errors fails unless errors.Is finds closed to be net.ErrClosed, and each of timeouts to be
// os.ErrDeadlineExceeded.
func Errors(t *testing.T, closed error, timeouts ...error) {
	t.Helper()
	if closed != nil && !errors.Is(closed, net.ErrClosed) {
		t.Errorf("%v is not net.ErrClosed", closed)
	}
	for _, err := range timeouts {
		var e net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &e) || !e.Timeout() {
			t.Errorf("%v is not os.ErrDeadlineExceeded", err)
		}
	}
}

// Invalid fails unless err is socknotify.ErrInvalid and names the field.
func Invalid(t *testing.T, field string, err error) {
	t.Helper()
	if !errors.Is(err, socknotify.ErrInvalid) || !strings.Contains(err.Error(), field) {
		t.Errorf("%s: %v, want socknotify.ErrInvalid and the name", field, err)
	}
}

// A recorder is a slog.Handler that keeps the records.
type recorder struct {
	mu      sync.Mutex
	records []slog.Record
}

func (r *recorder) Enabled(context.Context, slog.Level) bool { return true }
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *recorder) WithGroup(string) slog.Handler            { return r }

func (r *recorder) Handle(_ context.Context, record slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, record.Clone())
	return nil
}

// logged reports whether a panic with the text was logged as an error with the keys of the
// vocabulary.
func (r *recorder) logged(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.records, func(record slog.Record) bool {
		got := map[string]string{}
		record.Attrs(func(a slog.Attr) bool {
			got[a.Key] = a.Value.String()
			return true
		})
		return record.Level == slog.LevelError && got["panic"] == text && got["remote"] != "" &&
			strings.Contains(got["stack"], "goroutine ")
	})
}

// Panic fails unless a server without a Logger logs the panic that provoke makes its handler have
// with the value of the argument. It replaces slog.Default() until it returns.
func Panic(t *testing.T, provoke func(value string)) {
	t.Helper()
	before := slog.Default()
	defer slog.SetDefault(before)
	r := new(recorder)
	slog.SetDefault(slog.New(r))
	value := "the panic of " + t.Name()
	provoke(value)
	await.Until(t, "the panic is logged", func() bool { return r.logged(value) })
}
