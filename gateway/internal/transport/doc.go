// Package transport serves clients by Server-Sent Events, WebSocket and long polling; packages sse and
// websocket, and park.Suspend, have the connections. A request passes its files in this order:
//
//	server.go     which method answers it
//	publish.go    a POST of an event
//	subscribe.go  the topics, and where each begins
//	sse.go, socket.go, poll.go  the three ways to subscribe
//	change.go     the topics that are added to a connection and ended, and new tokens
//	backlog.go    the events that a slow client is told to have missed
//	transport.go  what the three share
package transport
