// Package webhook asks a backend what clients may do, and tells it when they have gone.
package webhook
