package interop

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/socknotify/socknotify/internal/test/idling"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2"
)

// BenchmarkGRPCStreams measures the memory of a server process for each connection with one server
// stream that waits, Watch of gRPC's health service: with gRPC's own server, and with its ServeHTTP
// on park.HTTPServer, park/http2 and net/http.
func BenchmarkGRPCStreams(b *testing.B) {
	for _, name := range []string{"grpc", "park", "net/http"} {
		b.Run(name, func(b *testing.B) {
			idling.Enough(b)
			for b.Loop() {
				idling.Measure(b, watched+name, watched).Report(b)
			}
		})
	}
}

// watched begins the arguments of the roles of BenchmarkGRPCStreams.
const watched = "watched "

// runWatched is the main function of the server process.
func runWatched(name string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	var streams atomic.Int64
	service := grpc.NewServer(grpc.StreamInterceptor(
		func(s any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
			streams.Add(1)
			defer streams.Add(-1)
			return serve(s, stream)
		}))
	healthpb.RegisterHealthServer(service, health.NewServer())
	hs := &http.Server{Handler: service, Protocols: new(http.Protocols)}
	hs.Protocols.SetUnencryptedHTTP2(true)
	settled := func() int { return int(streams.Load()) }
	serve := hs.Serve
	switch name {
	case "grpc":
		serve = service.Serve
	case "park":
		server := &park.HTTPServer{Server: hs, HTTP2: new(http2.Server)}
		serve = server.Serve
		settled = func() int { return min(int(streams.Load()), server.Stats().Parked) }
	}
	go func() { log.Fatal(serve(ln)) }()
	idling.Serve(ln, settled)
}

// watch opens a connection with a stream, and waits for its first message.
func watch(address string) (net.Conn, error) {
	conn, err := grpc.NewClient("passthrough:"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0))
	if err != nil {
		return nil, err
	}
	health := healthpb.NewHealthClient(conn)
	stream, err := health.Watch(context.Background(), new(healthpb.HealthCheckRequest))
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		err = errors.Join(err, conn.Close())
	}
	return nil, err // the goroutines of conn keep it
}
