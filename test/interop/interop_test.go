package interop

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2"
)

// The calls of gRPC's interoperability tests succeed with a gRPC server whose ServeHTTP park.HTTPServer calls, on one
// connection that is parked before each: unary calls, streams in each direction and in both, metadata, statuses, deadlines
// and cancellation. A call that fails ends the process with a message, because package interop does that.
func TestGRPCInterop(t *testing.T) {
	cert, trust, err := selfcert.New(24*time.Hour, "127.0.0.1")
	must(t, err)
	for _, c := range []struct {
		name   string
		secure bool
	}{{"h2c", false}, {"TLS", true}} {
		t.Run(c.name, func(t *testing.T) {
			service := grpc.NewServer()
			defer service.Stop()
			testgrpc.RegisterTestServiceServer(service, interop.NewTestServer())
			hs := &http.Server{Handler: service, Protocols: new(http.Protocols)}
			hs.Protocols.SetHTTP2(true)
			hs.Protocols.SetUnencryptedHTTP2(true)
			hs.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
			server := &park.HTTPServer{Server: hs, HTTP2: new(http2.Server), Linger: -1}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			served := make(chan error)
			creds := insecure.NewCredentials()
			if c.secure {
				creds = credentials.NewTLS(&tls.Config{RootCAs: trust})
			}
			go func() {
				if c.secure {
					served <- server.ServeTLS(ln, "", "")
				} else {
					served <- server.Serve(ln)
				}
			}()
			conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(creds))
			must(t, err)
			tests := testgrpc.NewTestServiceClient(conn)
			calls := []func(){
				func() { interop.DoEmptyUnaryCall(t.Context(), tests) },
				func() { interop.DoLargeUnaryCall(t.Context(), tests) },
				func() { interop.DoClientStreaming(t.Context(), tests) },
				func() { interop.DoServerStreaming(t.Context(), tests) },
				func() { interop.DoPingPong(t.Context(), tests) },
				func() { interop.DoEmptyStream(t.Context(), tests) },
				func() { interop.DoTimeoutOnSleepingServer(t.Context(), tests) },
				func() { interop.DoCancelAfterBegin(t.Context(), tests) },
				func() { interop.DoCancelAfterFirstResponse(t.Context(), tests) },
				func() { interop.DoCustomMetadata(t.Context(), tests) },
				func() { interop.DoStatusCodeAndMessage(t.Context(), tests) },
				func() { interop.DoSpecialStatusMessage(t.Context(), tests) },
				func() { interop.DoUnimplementedService(t.Context(), testgrpc.NewUnimplementedServiceClient(conn)) },
				func() { interop.DoUnimplementedMethod(t.Context(), conn) },
			}
			for i, call := range calls {
				call()
				await.Until(t, fmt.Sprintf("the connection is parked after call %d", i), func() bool {
					return server.Stats().Parked == 1
				})
			}
			must(t, conn.Close())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			must(t, server.Shutdown(ctx))
			if err := <-served; err != http.ErrServerClosed {
				t.Error(err)
			}
		})
	}
}
