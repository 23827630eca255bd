// Package test builds the C library and its test programs, and runs them.
package test
