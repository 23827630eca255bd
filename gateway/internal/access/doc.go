// Package access decides which requests are served. A request passes its files in this order:
//
//	origin.go     the host, and the page that has sent it
//	control.go    whether the gateway is open, and the rate of all clients
//	grant.go      what the client may do
//	words.go      what the first word of a topic allows
//	limit.go      the rate of each client
//	webhook.go    a backend is asked
//	subscribe.go  a request to subscribe, from its checks to its client
//	publish.go    a request to publish, until it is published
//	refusal.go    the answers to requests that are not served
//	log.go        the lines that clients can cause, so many a second
package access
