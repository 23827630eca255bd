// Package idling measures, for tests on Linux, what idle connections cost the process of their server. Servers
// and clients are processes of their own, so that each server begins afresh: a test program starts itself
// again, in a role.
package idling
