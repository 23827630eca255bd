package stress

import (
	"flag"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/leaks"
)

// patience is how long what must come may take.
const patience = time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	leaks.Main(m)
}
