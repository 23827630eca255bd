package parking

import (
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) {
	workerIdleTime = 100 * time.Millisecond // the port waits, in real time
	leaks.Main(m)
}
