package tunnel

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/internal/serving/nethttp"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
)

// A proxy's client is not upgraded before the backend was sent its whole request, also if the backend
// does not wait for that.
func TestReverseProxyUnreadBody(t *testing.T) {
	for _, parked := range []bool{false, true} {
		failed := make(chan error, 10)
		p := newProxyRun(t, false, parked, false, func(p *proxyRun) {
			p.proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
				failed <- err
				w.WriteHeader(http.StatusBadGateway)
			}
		})
		for _, c := range []struct {
			body string
			code int
		}{{"he", http.StatusBadGateway}, {"hello", http.StatusSwitchingProtocols}} {
			conn, err := net.Dial("tcp", p.address)
			check.OK(t, err)
			defer conn.Close()
			head := "POST / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: test\r\nContent-Length: 5\r\n\r\n"
			p.read.Store(int64(len(c.body)))
			conntest.Send(t, conn, head+c.body)
			if c.code != http.StatusSwitchingProtocols {
				if err := await.Value(t, failed); !strings.Contains(err.Error(), nethttp.ErrBodyUnread.Error()) {
					t.Error(err)
				}
				conntest.Send(t, conn, "llo") // net/http does not answer before
			}
			r, err := http.ReadResponse(bufio.NewReader(conn), nil)
			check.OK(t, err)
			if r.StatusCode != c.code {
				t.Errorf("with %q of the body: %s", c.body, r.Status)
			}
			await.Value(t, p.accepted).Close()
			await.Value(t, p.returned)
		}
		if st := p.g.Stats(); st.Accepted != 1 {
			t.Errorf("%+v", st)
		}
	}
}
