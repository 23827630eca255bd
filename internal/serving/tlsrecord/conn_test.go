package tlsrecord

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// shake returns the server's side after its handshake, and why it stays with crypto/tls.
func shake(conn net.Conn, config *tls.Config) (c *Conn, err error) {
	c = Server(conn, config, &Options{Kept: func(why error) { err = why }})
	if err := c.Handshake(); err != nil {
		return nil, err
	}
	return c, err
}

// pair returns a Conn and the crypto/tls client at its other end.
func pair(t testing.TB, server, client *tls.Config) (*Conn, *tls.Conn) {
	t.Helper()
	x, y := loopback(t)
	peer := tls.Client(x, client)
	handshake := make(chan error, 1)
	go func() { handshake <- peer.Handshake() }()
	c, err := shake(y, server)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-handshake; err != nil {
		t.Fatal(err)
	}
	return c, peer
}

// rawPair returns a Conn and a client that makes its own records.
func rawPair(t testing.TB) (*Conn, *raw) {
	t.Helper()
	x, y := loopback(t)
	got := make(chan *Conn, 1)
	go func() {
		c, err := shake(y, base)
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	client := dial(t, x, clientConfig)
	c := <-got
	if c == nil {
		t.FailNow()
	}
	return c, client
}

// Every suite that is spoken carries data in both directions at once.
func TestSuites(t *testing.T) {
	t.Parallel()
	for _, s := range suites {
		id := s.id
		t.Run(tls.CipherSuiteName(id), func(t *testing.T) {
			t.Parallel()
			if s.version == tls.VersionTLS13 {
				testKeys13(t, id)
				return
			}
			if !strings.Contains(tls.CipherSuiteName(id), "ECDSA") {
				t.Skip("the certificate is for ECDSA; TestOpenSSL has one for RSA")
			}
			config := clientConfig.Clone()
			config.MaxVersion, config.CipherSuites = s.version, []uint16{id}
			c, peer := pair(t, base, config)
			if got := c.ConnectionState().CipherSuite; got != id {
				t.Fatal(tls.CipherSuiteName(got))
			}
			exchange(t, c, peer)
		})
	}
}

// ends returns the records of both ends of a connection.
func ends(version, id uint16) (a, b *Records) {
	a, _ = newRecords(version, id)
	b, _ = newRecords(version, id)
	for i := range a.keys {
		a.keys[i] = byte(i)
	}
	copy(b.inKeys(), a.outKeys())
	copy(b.outKeys(), a.inKeys())
	return a, b
}

// testKeys13 runs two ends of Records, because a client cannot choose among the suites of TLS 1.3.
func testKeys13(t *testing.T, id uint16) {
	a, b := ends(tls.VersionTLS13, id)
	for i := range 100 {
		want := bytes.Repeat([]byte{byte(i)}, i)
		record, _ := a.Append(nil, want)
		if i == 0 {
			continue
		}
		if got, err := b.Open(nil, record); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d: %x, %v", i, got, err)
		}
		if i%10 == 0 {
			record = a.appendUpdate(nil)
			if got, err := b.Open(nil, record); err != nil || len(got) > 0 {
				t.Fatal(got, err)
			}
		}
	}
}

// exchange sends a megabyte in each direction in pieces of many sizes, and checks it.
func exchange(t *testing.T, a, b net.Conn) {
	t.Helper()
	var all sync.WaitGroup
	for _, way := range []struct{ from, to net.Conn }{{a, b}, {b, a}} {
		want := make([]byte, 1<<20)
		rand.NewChaCha8([32]byte{1}).Read(want)
		all.Go(func() {
			for rest := want; len(rest) > 0; {
				n := min(len(rest), 1+rand.N(50_000))
				if _, err := way.from.Write(rest[:n]); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
			way.from.(interface{ CloseWrite() error }).CloseWrite()
		})
		all.Go(func() {
			got, err := io.ReadAll(way.to)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	all.Wait()
}

// A session is resumed with tickets of the program's configuration, whatever made its keys, and a
// program's own key log has every line.
func TestResumption(t *testing.T) {
	t.Parallel()
	now := time.Now()
	explicit := func(c *tls.Config) { c.SetSessionTicketKeys([][32]byte{{1}}) }
	for _, k := range []struct {
		name    string
		set     func(c *tls.Config)
		between func(c *tls.Config)
		want    bool
	}{
		{"automatic keys", nil, nil, true},
		{"explicit keys", explicit, nil, true},
		{"another explicit key", explicit, func(c *tls.Config) { c.SetSessionTicketKeys([][32]byte{{2}}) }, false},
		{"a key more", explicit, func(c *tls.Config) { c.SetSessionTicketKeys([][32]byte{{2}, {1}}) }, true},
		{"automatic, then explicit", nil, explicit, false},
		{"no tickets", func(c *tls.Config) { c.SessionTicketsDisabled = true }, nil, false},
		{"rotated", nil, func(c *tls.Config) { now = now.Add(25 * time.Hour) }, true},
		{"expired", nil, func(c *tls.Config) { now = now.Add(8 * 24 * time.Hour) }, false},
		{"GetConfigForClient", func(c *tls.Config) {
			own := base.Clone()
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return own, nil }
		}, nil, true},
		{"GetConfigForClient, nil", func(c *tls.Config) {
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }
		}, nil, true},
		{"GetConfigForClient, keys of its own", func(c *tls.Config) {
			own := base.Clone()
			explicit(own)
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return own, nil }
		}, nil, true},
	} {
		t.Run(k.name, func(t *testing.T) {
			now = time.Now()
			var log bytes.Buffer
			server := base.Clone()
			server.KeyLogWriter = &log
			server.Time = func() time.Time { return now }
			if k.set != nil {
				k.set(server)
			}
			client := clientConfig.Clone()
			client.Time = time.Now // the certificate stays valid
			client.ClientSessionCache = tls.NewLRUClientSessionCache(0)
			for i := range 2 {
				if i == 1 && k.between != nil {
					k.between(server)
				}
				c, peer := pair(t, server, client)
				peer.SetReadDeadline(time.Now().Add(10 * time.Second))
				c.Write([]byte("x"))
				if _, err := io.ReadFull(peer, make([]byte, 1)); err != nil { // and the ticket
					t.Fatal(err)
				}
				if got := c.ConnectionState().DidResume; got != (i == 1 && k.want) {
					t.Errorf("connection %d resumed: %v", i, got)
				}
			}
			if n := strings.Count(log.String(), "SERVER_TRAFFIC_SECRET_0 "); n != 2 &&
				server.GetConfigForClient == nil {
				t.Errorf("the key log has %d secrets", n)
			}
		})
	}
}

// A connection that stays with crypto/tls works as before.
func TestStays(t *testing.T) {
	t.Parallel()
	client12 := clientConfig.Clone()
	client12.MaxVersion = tls.VersionTLS12
	chacha := client12.Clone()
	chacha.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256}
	old := base.Clone()
	old.MinVersion = tls.VersionTLS10
	client11 := clientConfig.Clone()
	client11.MinVersion, client11.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	resumed := client12.Clone()
	resumed.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	first, peer := pair(t, base, resumed)
	first.Close()
	peer.Close()
	for _, k := range []struct {
		name           string
		server, client *tls.Config
		want           error
	}{
		{"ChaCha20-Poly1305", base, chacha, ErrSuite},
		{"TLS 1.1", old, client11, ErrSuite},
		{"TLS 1.2, resumed", base, resumed, ErrNoSecrets},
	} {
		t.Run(k.name, func(t *testing.T) {
			x, y := loopback(t)
			peer := tls.Client(x, k.client)
			go peer.Handshake()
			c, err := shake(y, k.server)
			if !errors.Is(err, k.want) || c == nil || c.Stock() == nil {
				t.Fatal(c, err)
			}
			exchange(t, c, peer)
		})
	}
}

// What this package takes from a handshake of crypto/tls is the key log and, after the Finished, no
// record or one with a ticket. A Go release that changes that is noticed here; connections would
// then stay with crypto/tls.
func TestGoRelease(t *testing.T) {
	t.Parallel()
	noTickets := base.Clone()
	noTickets.SessionTicketsDisabled = true
	client13 := clientConfig.Clone() // it wants tickets
	client13.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	client12 := clientConfig.Clone()
	client12.MaxVersion = tls.VersionTLS12
	client12.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	secrets := []string{"CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_HANDSHAKE_TRAFFIC_SECRET",
		"CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"}
	for _, k := range []struct {
		name           string
		server, client *tls.Config
		labels         []string
		sent           uint64 // records under the keys of the data
	}{
		{"TLS 1.3", base, client13, secrets, 1},
		{"TLS 1.3 without tickets", noTickets, clientConfig, secrets, 0},
		{"TLS 1.2", base, client12, []string{"CLIENT_RANDOM"}, 1},
		{"TLS 1.2, resumed", base, client12, nil, 0},
	} {
		var log bytes.Buffer
		server := k.server.Clone()
		server.KeyLogWriter = &log
		server.SetSessionTicketKeys([][32]byte{{1}})
		x, y := loopback(t)
		peer := tls.Client(x, k.client)
		handshake := make(chan error, 1)
		go func() { handshake <- peer.Handshake() }()
		c, err := shake(y, server)
		if c == nil {
			t.Fatal(err)
		}
		if err := <-handshake; err != nil { // which has the ticket of TLS 1.2
			t.Fatal(err)
		}
		var labels []string
		for line := range strings.Lines(log.String()) {
			label, _, _ := strings.Cut(line, " ")
			labels = append(labels, label)
		}
		if !slices.Equal(labels, k.labels) || c.pump.Records.out.seq != k.sent || (err == nil) != (k.labels != nil) {
			t.Errorf("%s: crypto/tls of %s logs %q and sends %d records after its handshake, want %q and %d:"+
				" this package must be adapted to it (%v)",
				k.name, runtime.Version(), labels, c.pump.Records.out.seq, k.labels, k.sent, err)
		}
	}
}

// A counted connection counts calls, of which each is one of the system.
type counted struct {
	net.Conn
	reads, writes int
}

func (c *counted) Read(b []byte) (int, error) {
	c.reads++
	return c.Conn.Read(b)
}

func (c *counted) Write(b []byte) (int, error) {
	c.writes++
	return c.Conn.Write(b)
}

// A handshake takes no more calls of the connection below than with crypto/tls.
func TestHandshakeCalls(t *testing.T) {
	t.Parallel()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		client := clientConfig.Clone()
		client.MaxVersion = version
		calls := func(server func(net.Conn) net.Conn) *counted {
			x, y := net.Pipe()
			defer x.Close()
			defer y.Close()
			c := &counted{Conn: y}
			s := server(c)
			done := make(chan error, 1)
			go func() {
				_, err := io.ReadFull(s, make([]byte, 1))
				if err == nil {
					_, err = s.Write([]byte("y"))
				}
				done <- err
			}()
			peer := tls.Client(x, client)
			peer.Write([]byte("x"))
			io.ReadFull(peer, make([]byte, 1))
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			return c
		}
		stock := calls(sides[0].serve)
		ours := calls(sides[1].serve)
		if ours.reads > stock.reads || ours.writes > stock.writes {
			t.Errorf("%s: %d reads and %d writes; crypto/tls %d and %d", tls.VersionName(version),
				ours.reads, ours.writes, stock.reads, stock.writes)
		}
	}
}

// followed returns a connection of crypto/tls after its handshake, and what has followed that.
func followed(t *testing.T) (server *tls.Conn, w *wire, client *tls.Conn) {
	t.Helper()
	x, y := loopback(t)
	client = tls.Client(x, clientConfig)
	go client.Handshake()
	w = &wire{Conn: y}
	server = tls.Server(w, w.Config(base, y))
	if err := server.Handshake(); err != nil {
		t.Fatal(err)
	}
	return server, w, client
}

// A *tls.Conn that a program has kept can neither read nor write, since both would use numbers that
// have been used.
func TestCut(t *testing.T) {
	t.Parallel()
	kept, w, peer := followed(t)
	state := kept.ConnectionState()
	records, err := w.Take(&state)
	if err != nil {
		t.Fatal(err)
	}
	w.over = true
	w.dead.Store(true)
	if _, err := kept.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := kept.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	out, err := records.Append(nil, []byte("right"))
	if err != nil {
		t.Fatal(err)
	}
	w.Conn.Write(out)
	got := make([]byte, 5)
	if _, err := io.ReadFull(peer, got); err != nil || string(got) != "right" {
		t.Errorf("%q, %v", got, err)
	}
	kept.Close()
	if _, err := w.Conn.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Error("Close of the kept tls.Conn has not closed the socket:", err)
	}
}

// A key is changed before its limit, and the peer follows.
func TestKeyLimit(t *testing.T) {
	t.Parallel()
	c, client := rawPair(t)
	c.pump.Records.out.seq = keyLimit - 1
	client.r.in.seq = keyLimit - 1
	for range 3 {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	want := []string{`23: "x"`, `22: "\x18\x00\x00\x01\x00"`, `23: "x"`, `23: "x"`, `21: "\x01\x00"`}
	if answers := client.answers(); strings.Join(answers, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q", answers)
	}
}

// Requests for a KeyUpdate that cannot be answered yet have one answer together.
func TestOneAnswer(t *testing.T) {
	t.Parallel()
	a, b := ends(tls.VersionTLS13, tls.TLS_AES_128_GCM_SHA256)
	client := &raw{r: a}
	for range 5 {
		if _, err := b.Open(nil, client.update(1)); err != nil || !b.Owes() {
			t.Fatal(err)
		}
	}
	out := b.Answer(nil)
	if n, err := a.Length(out); err != nil || n != len(out) || b.Owes() || len(b.Answer(nil)) != 0 {
		t.Error(n, len(out), err)
	}
	if _, err := a.Open(nil, out); err != nil {
		t.Error(err)
	}
	record, _ := b.Append(nil, []byte("x"))
	if got, err := a.Open(nil, record); string(got) != "x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// A deadline leaves the connection as it was, also in the middle of a record.
func TestDeadline(t *testing.T) {
	t.Parallel()
	c, client := rawPair(t)
	record := client.data("hello")
	b := make([]byte, 10)
	for i := range record {
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if n, err := c.Read(b); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(n, err)
		}
		client.Write(record[i : i+1])
	}
	c.SetReadDeadline(time.Time{})
	if n, err := c.Read(b); string(b[:n]) != "hello" || err != nil {
		t.Errorf("%q, %v", b[:n], err)
	}
	if c.pump.buf != nil {
		t.Error("the buffer is kept")
	}
}

// Close overwrites the secrets, also while calls are blocked.
func TestWiped(t *testing.T) {
	t.Parallel()
	c, peer := pair(t, base, clientConfig)
	defer peer.Close()
	blocked := make(chan error)
	go func() {
		_, err := c.Read(make([]byte, 1))
		blocked <- err
	}()
	go func() {
		var err error
		for big := make([]byte, 1<<20); err == nil; {
			_, err = c.Write(big)
		}
		blocked <- err
	}()
	c.Close()
	for range 2 {
		if err := <-blocked; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
	c.pump.reading.Lock()
	c.writing.Lock()
	if len(bytes.Trim(c.pump.keys, "\x00")) > 0 {
		t.Error("secrets are left")
	}
	c.writing.Unlock()
	c.pump.reading.Unlock()
	if err := c.Close(); err != net.ErrClosed {
		t.Error(err)
	}
}

// The callbacks of a program see its own connection, and its state is that of crypto/tls.
func TestProgramSeesItsConnection(t *testing.T) {
	t.Parallel()
	x, y := loopback(t)
	config := base.Clone()
	var seen []net.Conn
	config.GetCertificate = func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		seen = append(seen, h.Conn)
		return &cert, nil
	}
	config.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		seen = append(seen, h.Conn)
		return nil, nil
	}
	config.NextProtos = []string{"one", "two"}
	client := clientConfig.Clone()
	client.NextProtos = []string{"two"}
	peer := tls.Client(x, client)
	go peer.Handshake()
	conn, err := shake(y, config)
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 || seen[0] != y || seen[1] != y {
		t.Error(seen)
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol != "two" || state.ServerName != "example.test" {
		t.Errorf("%+v", state)
	}
	conn.Write([]byte("x"))
	io.ReadFull(peer, make([]byte, 1))
	theirs := peer.ConnectionState()
	a, err1 := state.ExportKeyingMaterial("label", []byte("context"), 20)
	b, err2 := theirs.ExportKeyingMaterial("label", []byte("context"), 20)
	if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
		t.Errorf("%x, %x, %v, %v", a, b, err1, err2)
	}
}

// While a connection is busy nothing is allocated for a record.
func TestAllocatesNothing(t *testing.T) {
	c, client := rawPair(t)
	b, out, message := make([]byte, 100), make([]byte, 0, 200), make([]byte, 100)
	if n := testing.AllocsPerRun(200, func() {
		out, _ = client.r.Append(out[:0], message)
		client.Write(out)
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		c.Write(b)
		io.ReadFull(client, out)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// The ciphers of a connection that is idle for a round are dropped, and made again when needed.
func TestCiphersAreDropped(t *testing.T) {
	c, peer := pair(t, base, clientConfig)
	b := make([]byte, 1)
	echo := func() {
		t.Helper()
		peer.Write([]byte("x"))
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		c.Write(b)
		if _, err := io.ReadFull(peer, b); err != nil {
			t.Fatal(err)
		}
	}
	has := func() bool {
		c.pump.reading.Lock()
		defer c.pump.reading.Unlock()
		return c.pump.Records.in.work != nil || c.pump.Records.out.work != nil
	}
	round := ciphers.round.Load()
	echo()
	ciphers.drop()
	if !has() && ciphers.round.Load() == round+1 { // otherwise the timer has come too
		t.Error("dropped after less than a round")
	}
	ciphers.drop()
	ciphers.drop()
	if has() || c.pump.used.Load() > 0 {
		t.Error("kept")
	}
	echo()
	if !has() {
		t.Error("not made again")
	}
	c.Close()
	ciphers.drop()
	ciphers.drop()
	ciphers.drop()
	ciphers.mu.Lock()
	defer ciphers.mu.Unlock()
	if slices.ContainsFunc(ciphers.live, func(k keeping) bool { return k.User == c }) {
		t.Error("a closed connection is kept")
	}
}

// An idle connection takes less than 700 bytes besides its socket, or 1,000 with TLS 1.2, whose
// state keeps the ClientHello.
func TestIdleMemory(t *testing.T) {
	for version, limit := range map[uint16]int64{tls.VersionTLS13: 700, tls.VersionTLS12: 1_000} {
		each := int64(-1)
		for each < 0 { // what earlier tests have left was freed during the measurement
			each = idleMemory(t, version)
		}
		t.Logf("%s: %d bytes", tls.VersionName(version), each)
		if each > limit {
			t.Errorf("%s: %d bytes, limit %d", tls.VersionName(version), each, limit)
		}
	}
}

// idleMemory returns the bytes of the heap that each of some idle connections takes.
func idleMemory(t *testing.T, version uint16) int64 {
	const n = 200
	client := clientConfig.Clone()
	client.MaxVersion = version
	wires := make([][2]net.Conn, n)
	for i := range wires {
		wires[i][0], wires[i][1] = loopback(t)
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	conns := make([]net.Conn, n)
	defer runtime.KeepAlive(conns)
	before := heap()
	for i, w := range wires {
		peer := tls.Client(w[0], client)
		done := make(chan struct{})
		go func() {
			defer close(done)
			peer.Write([]byte("x"))
			io.ReadFull(peer, make([]byte, 1))
		}()
		c, err := shake(w[1], base)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		io.ReadFull(c, b)
		c.Write(b)
		<-done
		conns[i] = c
	}
	for Live() > 0 {
		ciphers.drop()
	}
	return (heap() - before) / n
}

// A malformed alert behind data is answered although the data is returned with its error.
func TestMalformedAlertBehindData(t *testing.T) {
	t.Parallel()
	c, client := rawPair(t)
	client.Write(append(client.data("x"), typeAlert, 3, 1, 0, 2))
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	b := make([]byte, 1)
	n, err := c.Read(b)
	for n == 1 && err == nil { // the alert may come later
		_, err = c.Read(b)
	}
	var malformed tls.RecordHeaderError
	if !errors.As(err, &malformed) {
		t.Error(err)
	}
	client.SetReadDeadline(time.Now().Add(10 * time.Second))
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(client, head); err != nil {
		t.Error("no alert:", err)
	}
}

// What the handshake has learned of a connection that stays with crypto/tls is overwritten.
func TestKeptIsWiped(t *testing.T) {
	t.Parallel()
	kept, w, _ := followed(t)
	c := Server(w.Conn, base, &Options{Keep: func(tls.ConnectionState) bool { return true }})
	c.take(c.stock.Load(), kept, w)
	if c.Stock() != kept || w.server.n != 0 || w.last != nil {
		t.Error("secrets of the handshake are kept")
	}
}

// FuzzRecords opens what a peer may send that knows the secrets: the first byte of a piece of input
// is the type of a record, or says that the record is not encrypted.
func FuzzRecords(f *testing.F) {
	f.Add([]byte("\x17\x05hello\x15\x02\x01\x00"), true)
	f.Add([]byte("\x16\x05\x18\x00\x00\x01\x01\x17\x01x"), true)
	f.Add([]byte("\x16\x04\x00\x00\x00\x00"), false)
	f.Add([]byte("\x80\x06\x14\x03\x03\x00\x01\x01"), true)
	f.Fuzz(func(t *testing.T, input []byte, is13 bool) {
		client, server := ends(tls.VersionTLS12, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256)
		if is13 {
			client, server = ends(tls.VersionTLS13, tls.TLS_AES_128_GCM_SHA256)
		}
		var want, got []byte
		for len(input) >= 2 && server.Err() == nil {
			kind, n := input[0], min(int(input[1]), len(input)-2)
			content := input[2 : 2+n]
			input = input[2+n:]
			record := bytes.Clone(content)
			if kind == 0 {
				kind = typeData // a zero is padding, and the type is before it
			}
			if kind&0x80 == 0 {
				record = client.seal(nil, kind, content)
				if kind == typeData {
					want = append(want, content...)
				}
			}
			if len(record) < headerSize {
				return
			}
			n, err := server.Length(record)
			if err != nil || len(record) < n {
				return
			}
			updates := server.in.seq
			data, err := server.Open(nil, record[:n])
			if err == nil {
				got = append(got, data...)
			}
			if server.in.seq < updates {
				client.nextOut() // it has followed a KeyUpdate
			}
			server.Answer(nil)
		}
		if !bytes.HasPrefix(want, got) {
			t.Errorf("%q, %q", got, want)
		}
	})
}
