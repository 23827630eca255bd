package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/socknotify/socknotify"
)

// maxWorkers bounds --workers, so that a typing error does not exhaust the machine.
const maxWorkers = 10_000

// resolve returns the backend that ports will run on, given the value of --backend.
func resolve(flag string) (string, error) {
	name, from := flag, "--backend"
	if name == "" {
		name, from = os.Getenv(socknotify.BackendEnv), socknotify.BackendEnv
	}
	backends := socknotify.Backends()
	switch {
	case len(backends) == 0:
		return "", failure{fmt.Errorf("no backend for this system yet: %w", errors.ErrUnsupported)}
	case name == "":
		return backends[0], nil
	case !slices.Contains(backends, name):
		p, err := socknotify.New[int](socknotify.WithBackend(name)) // New returns the reason
		if err != nil {
			return "", fmt.Errorf("%s: %w", from, err)
		}
		p.Close()
	}
	return name, nil
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
