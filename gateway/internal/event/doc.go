// Package event has what the gateway passes on: an event with its topic and its place in the stream, and
// the gap in the place of events that are lost. It knows neither NATS nor clients.
//
//	topic.go  topics, filters, the subjects of NATS that stand for them, and the gateway's own topics
//	shard.go  which of several streams has a topic
//	event.go  an event, and its forms on the wire, each made once
//	id.go     the place of an event in the stream; its text is the event's id
//	gap.go    the events that a client does not get, and why
package event
