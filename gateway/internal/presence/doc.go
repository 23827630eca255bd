// Package presence knows who is on a topic, on all nodes.
//
//	presence.go  the nodes: each says that it is there, who joins and leaves, and who its members are
//	roster.go    the members of a topic, for the node's subscribers to its presence
//	serve.go     a request for the members of a topic
package presence
