package client_test

import (
	"context"
	"log"

	"github.com/socknotify/socknotify/gateway/client"
)

func Example() {
	ctx := context.Background()
	handle := func(topic, data string) error { return nil }
	c := &client.Client{Nodes: []string{"https://a.example.org", "https://b.example.org"}}
	err := c.Subscribe(ctx, &client.Subscription{
		Topics:  []string{"orders.>"},
		OnEvent: func(e client.Event) error { return handle(e.Topic, e.Data) },
	})
	log.Print(err)
}
