package words

import (
	"encoding/json"
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

// A recorder keeps the records that a slog.JSONHandler writes.
type recorder struct {
	mu      sync.Mutex
	records []map[string]any
}

func (r *recorder) Write(line []byte) (int, error) {
	var record map[string]any
	err := json.Unmarshal(line, &record)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, record)
	return len(line), err
}

// logged reports whether a panic with the text was logged as an error with the keys of the
// vocabulary.
func (r *recorder) logged(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.records, func(got map[string]any) bool {
		remote, _ := got["remote"].(string)
		stack, _ := got["stack"].(string)
		return got["level"] == "ERROR" && got["panic"] == text && remote != "" &&
			strings.Contains(stack, "goroutine ")
	})
}

// Panic fails unless a server without a Logger logs the panic that provoke makes its handler have
// with the value of the argument. It replaces slog.Default() until it returns.
func Panic(t *testing.T, provoke func(value string)) {
	t.Helper()
	before := slog.Default()
	defer slog.SetDefault(before)
	r := new(recorder)
	slog.SetDefault(slog.New(slog.NewJSONHandler(r, nil)))
	value := "the panic of " + t.Name()
	provoke(value)
	await.Until(t, "the panic is logged", func() bool { return r.logged(value) })
}
