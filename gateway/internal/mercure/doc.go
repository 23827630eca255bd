// Package mercure serves Mercure's protocol. All updates are events of one topic of the gateway's own,
// and each node's clients choose among them. An update passes these files:
//
//	publish.go        a POST with a form
//	update.go         an update, stored and on the wire
//	client.go         a client, and the updates that it gets
//	selectors.go      the topic selectors of the clients of this node
//
// A client's request passes these:
//
//	server.go         which method answers it
//	mercure.go        its token
//	subscribe.go      the selectors, and the update after which it begins
//	subscriptions.go  the subscriptions of all nodes, published and asked for
package mercure
