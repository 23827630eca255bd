// Package handles is for tests: which descriptors or handles the process has open, and, on Windows, how a
// handle's number is used again, which the system cannot be told to do.
package handles
