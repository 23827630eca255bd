// Package docs_test tests what the documents say: their code, commands, links and figures.
package docs_test

import (
	"os"
	"testing"
)

// The documents' folder is the current one, as it is for their links.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../docs"); err != nil {
		panic(err)
	}
	m.Run()
}
