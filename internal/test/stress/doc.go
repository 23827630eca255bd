// Package stress is the stress test of the recommended pattern: many connections on one port, many
// workers, one-shot registrations enabled again in the call that dequeues.
//
// Every connection carries a key stream in both directions, a function of the stream's identity and
// the position, that the receiver compares: what is corrupt, lost, doubled or another connection's
// shows at once. The context of a registration passes from state to state as its owner does, so a
// second owner, or a notification after the last, shows too. At the end no more is sent, and what
// was sent must arrive: a lost wake-up leaves it lying. A seed fixes what each worker draws, though
// not how the workers interleave.
//
// Longer runs:
//
//	go test ./internal/test/stress -run Stress -stress.pairs=5000 -stress.duration=60s -stress.workers=16
//	go test ./internal/test/stress -run Stress/epoll -stress.seed=42 -race
//	go test ./internal/test/stress -run Posts -stress.posts=10000000
package stress
