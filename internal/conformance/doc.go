// Package conformance is the contract of package socknotify as a test suite: each numbered sentence
// of docs/contract.md has a group of cases that bears its number.
//
// A kernel's room, or anything else that makes ports, is tested by
//
//	func TestMine(t *testing.T) {
//		conformance.Run(t, func(tb testing.TB) *socknotify.Port[any] { ... })
//	}
//
// whose subtests are TestMine/Conformance/G4/RemoveDisabled and so on. This package's own test runs
// every backend of the system, with the backend and the sentence in one element of the name, as in
// TestConformance/epoll-G4/RemoveDisabled; so
//
//	go test ./conformance -run 'Conformance/.*G9'
//
// runs sentence G9 on each of them ('Conformance/.*G1$' leaves G10 to G12 out), and SOCKNOTIFY_BACKEND
// restricts it to one.
//
// The cases assert order and outcome, and that nothing comes early; never how fast anything is. What
// must come has minutes, until something has not come. They count the descriptors and goroutines of the whole process, so
// nothing else may run beside them.
package conformance
