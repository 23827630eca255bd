//go:build !unix && !windows

package lost

var silent, certain, possible []error // there is no backend for this system
