// Package handles is for tests on Windows: which handles the process has, and how a handle's number is
// used again, which the system cannot be told to do.
package handles
