package words

import (
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/serving"
)

type inner struct{ Conns int }

// Server is a server with each fault that Check finds.
type Server struct {
	inner
	Logger      *slog.Logger
	IdleTimeout int
	MaxSpeed    int
	unexported  int //lint:ignore U1000 Check must not look at it
}

func TestFaults(t *testing.T) {
	want := []string{"words.Server embeds words.inner", "words.Server.IdleTimeout is a int, want time.Duration",
		"words.Server.MaxSpeed is not in the vocabulary"}
	if got := faults(reflect.TypeFor[Server]()); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNegative(t *testing.T) {
	var c struct {
		IdleTimeout time.Duration
		MaxConns    int
		AcceptRate  serving.Rate
		SlowPolicy  serving.SlowPolicy
		MaxSpeed    int
	}
	if names := Negative(&c); !slices.Equal(names, []string{"IdleTimeout", "MaxConns", "AcceptRate"}) ||
		c.IdleTimeout != -1 || c.MaxConns != -1 || c.AcceptRate.PerSecond != -1 || c.MaxSpeed != 0 {
		t.Errorf("%v, %+v", names, c)
	}
}

func TestKeyFaults(t *testing.T) {
	const source = `package p
func f() {
	s.log(level, "message", "error", err, "remote", a)
	l.Info("message", "retry in", d)
	http.Error(w, err.Error(), 400)
}`
	want := []string{`f.go:3:26: the key "error" is not in the vocabulary`, `f.go:4:20: the key "retry in" is not in the vocabulary`}
	if got := keyFaults(t, "f.go", source); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
