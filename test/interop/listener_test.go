package interop

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"

	paho "github.com/eclipse/paho.mqtt.golang"
	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
)

// silent opens connections that send nothing, and waits until they are parked.
func silent(t *testing.T, f *park.FirstByteListener, ln net.Listener) {
	t.Helper()
	for range idle {
		dial(t, ln)
	}
	waitFor(t, "silent connections wait", func() bool { return f.Stats().Parked == idle })
}

// gRPC works behind a Listener, with its own client.
func TestGRPC(t *testing.T) {
	ln := listen(t)
	f := park.Listener(ln)
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(f) }()
	silent(t, f, ln)
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for range 10 {
		answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		if err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
			t.Fatal(answer, err)
		}
	}
	if n := f.Stats().Parked; n != idle {
		t.Errorf("%d silent connections are parked, want %d", n, idle)
	}
	server.Stop()
	must(t, <-served)
}

// mochi-mqtt works behind a Listener, with paho's client.
func TestMQTT(t *testing.T) {
	ln := listen(t)
	f := park.Listener(ln)
	server := mqtt.New(&mqtt.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	must(t, server.AddHook(new(auth.AllowHook), nil))
	must(t, server.AddListener(listeners.NewNet("net", f)))
	must(t, server.Serve())
	defer server.Close()
	silent(t, f, ln)
	client := paho.NewClient(paho.NewClientOptions().AddBroker("tcp://" + ln.Addr().String()).SetClientID("test"))
	wait := func(token paho.Token) {
		t.Helper()
		if !token.WaitTimeout(timeout) {
			t.Fatal("timed out waiting for the broker")
		}
		must(t, token.Error())
	}
	wait(client.Connect())
	defer client.Disconnect(0)
	got := make(chan string, 10)
	wait(client.Subscribe("topic", 1, func(_ paho.Client, m paho.Message) { got <- string(m.Payload()) }))
	for range 10 {
		wait(client.Publish("topic", 1, false, "text"))
		if text := await.Receive(t, "the message", got); text != "text" {
			t.Fatalf("%q", text)
		}
	}
	if n := f.Stats().Parked; n != idle {
		t.Errorf("%d silent connections are parked, want %d", n, idle)
	}
}
