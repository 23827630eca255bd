package tlsrecord

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// An owner has a pump, and the bytes that it will receive: each piece by one call, and then err.
type owner struct {
	Pump
	sending sync.Mutex
	pieces  [][]byte
	err     error
}

func (o *owner) DropCiphers() bool { return o.Pump.DropCiphers(&o.sending) }

func (o *owner) receive(b []byte) (int, error) {
	if len(o.pieces) == 0 {
		return 0, o.err
	}
	n := copy(b, o.pieces[0])
	if o.pieces[0] = o.pieces[0][n:]; len(o.pieces[0]) == 0 {
		o.pieces = o.pieces[1:]
	}
	return n, nil
}

// read reads once, as an owner does.
func (o *owner) read(b []byte) (int, error) {
	o.Lock()
	defer o.Unlock()
	return o.Read(o, b, buffers, o.receive)
}

// pumped returns a client, and a pump that will receive pieces and then an error.
func pumped(err error) (*raw, *owner) {
	client, server := ends(tls.VersionTLS13, tls.TLS_AES_128_GCM_SHA256)
	return &raw{r: client}, &owner{Pump: Pump{Records: *server}, err: err}
}

// What a pump reads is what was sent, in whatever pieces that arrives and is read, and when all is
// read no buffer is kept.
func FuzzPump(f *testing.F) {
	f.Add([]byte("hello, world"), uint16(1), uint16(1), uint16(1))
	f.Add(bytes.Repeat([]byte("0123456789"), 1000), uint16(4000), uint16(3), uint16(70))
	f.Add(bytes.Repeat([]byte("0123456789"), 9000), uint16(40000), uint16(40000), uint16(40000))
	f.Fuzz(func(t *testing.T, data []byte, record, piece, read uint16) {
		data = data[:min(len(data), 1<<17)]
		client, o := pumped(ErrNothing)
		var wire []byte
		for rest := data; len(rest) > 0; {
			n := min(int(record)+1, len(rest))
			wire, _ = client.r.Append(wire, rest[:n])
			rest = rest[n:]
		}
		for len(wire) > 0 {
			n := min(int(piece)+1, len(wire))
			o.pieces, wire = append(o.pieces, wire[:n]), wire[n:]
		}
		var got []byte
		b := make([]byte, int(read)+1)
		for len(got) < len(data) {
			n, err := o.read(b)
			if err != nil {
				t.Fatalf("%d bytes of %d, and then %v", len(got), len(data), err)
			}
			got = append(got, b[:n]...)
		}
		if !bytes.Equal(got, data) {
			t.Error("other bytes than were sent")
		}
		if o.buf != nil {
			t.Error("a buffer is kept")
		}
		if n, err := o.read(b); n != 0 || err != ErrNothing {
			t.Errorf("at the end: %d bytes, %v", n, err)
		}
	})
}

// After a temporary error a pump goes on with the record, and every other error is final.
func TestPumpErrors(t *testing.T) {
	for _, k := range []struct {
		name      string
		have      int // bytes of the record that have arrived
		err, want error
	}{
		{"nothing in a record", 7, ErrNothing, ErrNothing},
		{"end in a record", 7, io.EOF, io.ErrUnexpectedEOF},
		{"end in a header", 2, io.EOF, io.ErrUnexpectedEOF},
		{"end between records", 0, io.EOF, io.EOF},
		{"failure", 7, net.ErrClosed, net.ErrClosed},
	} {
		client, o := pumped(k.err)
		record := client.data("x")
		if k.have > 0 {
			o.pieces = [][]byte{record[:k.have]}
		}
		b := make([]byte, 1)
		if _, err := o.read(b); err != k.want {
			t.Errorf("%s: %v, want %v", k.name, err, k.want)
		}
		if k.have > 0 && !o.HasBytes() {
			t.Errorf("%s: the beginning of the record is lost", k.name)
		}
		o.pieces = [][]byte{record[k.have:]}
		n, err := o.read(b)
		if k.want == ErrNothing && (n != 1 || err != nil) || k.want != ErrNothing && err != k.want {
			t.Errorf("%s: then %d bytes, %v", k.name, n, err)
		}
	}
}

// What must be sent for a record is known when Read returns: a KeyUpdate, or an alert.
func TestPumpOwes(t *testing.T) {
	client, o := pumped(ErrNothing)
	b := make([]byte, 10)
	o.pieces = [][]byte{append(client.update(1), client.data("x")...)}
	if n, err := o.read(b); n != 0 || err != nil || !o.Owes() {
		t.Fatal(n, err)
	}
	if n, err := o.read(b); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if out := o.Answer(nil); len(out) == 0 || o.Owes() {
		t.Error("no KeyUpdate")
	}
	broken := client.data("y")
	broken[len(broken)-1]++
	o.pieces = [][]byte{broken}
	if n, err := o.read(b); n != 0 || !errors.Is(err, badRecordMAC) || !o.Owes() {
		t.Fatal(n, err)
	}
	if out := o.Answer(nil); len(out) == 0 || o.Owes() {
		t.Error("no alert")
	}
}

// An alert behind the data is read with it if it has arrived. TLS 1.3 hides the type of a record.
func TestPumpReadAlert(t *testing.T) {
	for _, k := range []struct {
		name     string
		version  uint16
		id       uint16
		behind   int // bytes of the alert that have arrived
		is, ends bool
	}{
		{"whole", tls.VersionTLS12, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, 1000, true, true},
		{"a part", tls.VersionTLS12, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, 9, true, false},
		{"nothing", tls.VersionTLS12, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, 0, false, false},
		{"hidden", tls.VersionTLS13, tls.TLS_AES_128_GCM_SHA256, 1000, false, false},
	} {
		client, server := ends(k.version, k.id)
		o := &owner{Pump: Pump{Records: *server}, err: ErrNothing}
		data, _ := client.Append(nil, []byte("x"))
		alert := client.CloseNotify(nil)
		o.pieces = [][]byte{append(data, alert[:min(k.behind, len(alert))]...)}
		if n, err := o.read(make([]byte, 1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if is := o.ReadAlert(o); is != k.is || (o.Err() == io.EOF) != k.ends {
			t.Errorf("%s: %v, %v", k.name, is, o.Err())
		}
	}
}

// Bytes that arrived before the pump had the connection are read first, also more of them than a
// buffer has room for.
func TestPumpFeed(t *testing.T) {
	for _, records := range []int{0, 1, 4} {
		client, o := pumped(ErrNothing)
		var wire, want []byte
		for range records {
			want = append(want, bytes.Repeat([]byte("x"), MaxPlaintext)...)
			wire = append(wire, client.data(string(want[:MaxPlaintext]))...)
		}
		wire = append(wire, client.data("end")[:4]...)
		o.Feed(wire, buffers)
		clear(wire)
		if o.Arrived() != (records > 0) {
			t.Error("Arrived is wrong")
		}
		var got []byte
		b := make([]byte, 1000)
		for {
			n, err := o.read(b)
			if err == ErrNothing {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, b[:n]...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes, want %d", len(got), len(want))
		}
	}
}

// A pump is given to a Conn and back, with the bytes that have arrived. The Conn is closed then, and
// its end overwrites no secrets that the pump goes on with.
func TestPumpMoves(t *testing.T) {
	t.Parallel()
	x, y := loopback(t)
	client, o := pumped(ErrNothing)
	client.Conn = x
	o.pieces = [][]byte{append(client.data("hello"), client.data("again")[:9]...)}
	b := make([]byte, 3)
	if n, err := o.read(b); string(b[:n]) != "hel" || err != nil {
		t.Fatal(n, err)
	}
	c := Attach(y, &o.Pump, State{})
	if o.keys != nil || o.buf != nil || o.Err() == nil {
		t.Error("the pump goes on with what it has given away")
	}
	if n, err := c.Read(b); string(b[:n]) != "lo" || err != nil {
		t.Fatal(string(b[:n]), err)
	}
	blocked := make(chan error)
	go func() {
		_, err := c.Read(make([]byte, 1))
		blocked <- err
	}()
	for c.pump.reading.TryLock() {
		c.pump.reading.Unlock()
		time.Sleep(time.Millisecond)
	}
	if _, ok := c.Detach(&o.Pump); ok {
		t.Error("detached during a Read")
	}
	y.SetReadDeadline(time.Now())
	if err := <-blocked; err == nil {
		t.Error("a Read of half a record has succeeded")
	}
	if _, ok := c.Detach(&o.Pump); !ok {
		t.Fatal("not detached")
	}
	if _, err := c.Write(b); err != net.ErrClosed {
		t.Error(err)
	}
	if _, err := c.Read(b); err != net.ErrClosed {
		t.Error(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != net.ErrClosed {
		t.Error(err)
	}
	if _, ok := c.Detach(&o.Pump); ok {
		t.Error("detached twice")
	}
	if !o.HasBytes() || len(bytes.Trim(o.keys, "\x00")) == 0 {
		t.Error("the records or the bytes are lost")
	}
	if _, err := o.Append(nil, []byte("x")); err != nil {
		t.Error(err)
	}
}

// While a pump is used its ciphers are not dropped, and a failure stays known when they are.
func TestPumpDropsCiphers(t *testing.T) {
	client, o := pumped(syscall.ECONNRESET)
	o.pieces = [][]byte{client.data("x")}
	b := make([]byte, 1)
	if n, err := o.read(b); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	o.Lock()
	if o.DropCiphers() {
		t.Error("dropped while the receiving side is used")
	}
	o.Unlock()
	o.sending.Lock()
	if o.DropCiphers() {
		t.Error("dropped while the sending side is used")
	}
	o.sending.Unlock()
	if !o.DropCiphers() || o.Records.in.work != nil || o.used.Load() != 0 {
		t.Error("not dropped")
	}
	if _, err := o.read(b); err != syscall.ECONNRESET {
		t.Error(err)
	}
	if o.DropCiphers(); o.Err() != syscall.ECONNRESET {
		t.Error("the failure is forgotten")
	}
}
