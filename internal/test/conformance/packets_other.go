//go:build !unix

package conformance

func (e *env) packets() (a, b fd) { panic("Unix sequenced packets are for Unix") }
