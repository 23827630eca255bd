package nowait

import (
	"testing"

	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }
