// Package model checks the port against a small executable model of its contract.
//
// A sequence of operations ([]Op, plain values) acts on real sockets and on a model of what the
// contract promises about them. The model knows for each registration what must be notified, what
// may be, and what must not; whether a condition holds it asks poll(2), never the port. Sequences
// come from rapid, which shrinks a failing one, or from Go's fuzzer; either way a failure prints
// the sequence as a Go literal that can be pasted into the table of regressions.
//
// Without waiters the sequence's own goroutine dequeues, and every check is exact. With waiters
// other goroutines dequeue all the time; then a call may return what it had taken before an
// operation, and only that is allowed in addition.
//
// Longer runs:
//
//	go test ./internal/test/model -rapid.checks=20000
//	go test ./internal/test/model -run 'Model/epoll' -model.waiters=0,2,16 -model.steps=200
//	go test ./internal/test/model -run '^$' -fuzz FuzzModel -fuzztime 10m -fuzzminimizetime 1x
//
// (Coverage depends on timing, so the fuzzer would spend its time minimizing inputs in vain.)
package model
