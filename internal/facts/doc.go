// Package facts observes what this system's kernels say of sockets in each situation that systems are known
// to differ in, and answers the questions that only a run on a system can answer. The test FactSheet of the
// root package prints the table; docs/platforms.md keeps the tables of the systems that it was run on.
package facts
