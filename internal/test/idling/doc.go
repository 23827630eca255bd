// Package idling measures the memory that idle connections cost a server, for tests on Linux. Servers and clients
// run in child processes, so that each measurement begins with a fresh process. The child processes execute the
// test program in a role.
package idling
