package socknotify_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/trace"
	"strings"
	"testing"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/porttest"
)

// An execution trace has the waits, batches and handlers, each within the task of its call's context.
func TestExecutionTrace(t *testing.T) {
	long.Only(t, "Go builds its trace tool for it")
	file := filepath.Join(t.TempDir(), "trace")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := New[string]()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := trace.Start(f); err != nil {
		t.Fatal(err)
	}
	ctx, task := trace.NewTask(t.Context(), "test")
	x, y := porttest.Pair(t)
	woken := make(chan error, 1)
	go func() {
		var out [2]Notification[string]
		_, err := p.ProcessContext(ctx, []Registration[string]{porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot)}, out[:])
		woken <- err
	}()
	await.Until(t, "the waiter sleeps", func() bool { return p.Stats().Waiting == 1 })
	porttest.Send(t, y)
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	p.Post("k", 0)
	for range p.All(context.Background()) {
		break
	}
	task.End()
	trace.Stop()

	text, err := exec.Command("go", "tool", "trace", "-d=parsed", file).CombinedOutput()
	if err != nil {
		t.Fatalf("go tool trace: %v: %s", err, text)
	}
	for _, want := range []struct {
		event, name string
		count       int
		inTask      bool
	}{
		{"RegionBegin", "socknotify.wait", 1, true}, {"RegionEnd", "socknotify.wait", 1, true},
		{"RegionBegin", "socknotify.handle", 1, false}, {"RegionEnd", "socknotify.handle", 1, false},
		{"Log", "socknotify.batch", 2, false},
	} {
		n := 0
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, " "+want.event+" ") && strings.Contains(line, `"`+want.name+`"`) {
				n++
				if in := !regexp.MustCompile(`Task=(0|18446744073709551615)\b`).MatchString(line); want.inTask && !in {
					t.Errorf("outside the task: %s", line)
				}
			}
		}
		if n != want.count {
			t.Errorf("%d of %s %s; want %d", n, want.event, want.name, want.count)
		}
	}
	if t.Failed() {
		t.Log(string(regexp.MustCompile(`(?m)^.*(Region|Log|Task).*$`).Find(text)))
	}
}
