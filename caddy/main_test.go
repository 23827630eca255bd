package caddy

import "testing"

func TestMain(m *testing.M) {
	if !runRole() {
		m.Run()
	}
}
