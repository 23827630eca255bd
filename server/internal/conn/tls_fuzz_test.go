package conn

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzTLSRecords gives crypto/tls any bytes, in pieces of any size, as tlsStack does. Each
// piece is of one record, together they are the bytes, and the count of records is right.
func FuzzTLSRecords(f *testing.F) {
	f.Add([]byte("\x17\x03\x03\x00\x02ab\x17\x03\x03\x00\x00\x15\x03\x03\x00\x01c"), []byte{1, 2, 3})
	f.Add([]byte("\x17\x03\x03\x00\x02ab\x17\x03\x03\x00\x00\x15\x03\x03\x00\x01c"), []byte{255})
	f.Add([]byte("\x17\x03\x03\xff\xffab"), []byte{4, 1, 255})
	f.Add([]byte("\x17\x03\x03"), []byte{0})
	f.Add(bytes.Repeat([]byte{0}, 100), []byte{7})
	f.Fuzz(func(t *testing.T, b, sizes []byte) {
		ends := map[int]bool{} // of records in b
		const header = 5
		heads := 0
		for at := 0; at+header <= len(b); {
			heads++
			at += header + int(binary.BigEndian.Uint16(b[at+3:]))
			ends[at] = true
		}
		c := &tlsStack{conn: &Conn{link: &link{listener: &Listener{shared: new(Shared)}}}, feed: bytes.Clone(b)}
		var got []byte
		for i := 0; len(c.feed) > 0; i++ {
			size := 512
			if len(sizes) > 0 {
				size = int(sizes[i%len(sizes)]) + 1
			}
			p := make([]byte, size)
			n, err := c.readRecord(p)
			if n == 0 || err != nil {
				t.Fatalf("%d bytes, %v, with %d left", n, err, len(c.feed))
			}
			for k := len(got) + 1; k < len(got)+n; k++ {
				if ends[k] {
					t.Fatalf("a piece from %d to %d, across the end of a record at %d", len(got), len(got)+n, k)
				}
			}
			got = append(got, p[:n]...)
		}
		if !bytes.Equal(got, b) || int(c.heads) != heads {
			t.Errorf("%d bytes of %d, or others; %d records of %d", len(got), len(b), c.heads, heads)
		}
	})
}
