// Package facts observes what the backends of this system report about sockets in each situation in which systems
// are known to differ, and answers questions that only a run on the system can answer. The test FactSheet of
// the root package prints the table. docs/platforms.md has the tables of the systems on which it was run.
package facts
