package param_test

import (
	"testing"

	"github.com/socknotify/socknotify/bench/internal/param"
)

func TestString(t *testing.T) {
	p := param.Params{Connections: 1000, Busy: 8, Size: 64, Cores: 2, What: "x"}
	if got := p.String(); got != "x connections=1000 busy=8 size=64 cores=2" {
		t.Errorf("%q", got)
	}
}

func TestOutcome(t *testing.T) {
	o := param.Outcome{Ops: 1000, CPU: 500_000, Elapsed: 2e9, Base: 100}
	if o.PerOp() != 400 || o.Rate() != 500 {
		t.Errorf("%v, %v", o.PerOp(), o.Rate())
	}
}
