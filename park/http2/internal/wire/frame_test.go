package wire

import (
	"bytes"
	"testing"

	"golang.org/x/net/http2"
)

// A DATA frame is parsed as a Framer parses it, with any padding.
func TestParseData(t *testing.T) {
	p := GetParser(MaxSize)
	defer p.Release()
	for _, payload := range []string{"", "\x00", "\x01", "\x00a", "\x01a", "\x02a", "\x02abc", "\x03abc", "\x04abc", "abc"} {
		for flags := range http2.FlagDataPadded | http2.FlagDataEndStream + 1 {
			for _, stream := range []uint32{0, 1, 1<<31 - 1} {
				b := append(AppendFrame(nil, http2.FrameData, flags, stream, len(payload)), payload...)
				got, err := p.Parse(b)
				want, wantErr := http2.NewFramer(nil, bytes.NewReader(b)).ReadFrame()
				if (err != nil) != (wantErr != nil) {
					t.Fatalf("%q: %v, want %v", b, err, wantErr)
				}
				if err != nil {
					continue
				}
				g, w := got.(*DataFrame), want.(*http2.DataFrame)
				if !bytes.Equal(g.Data, w.Data()) || g.Flags != w.Flags || g.Length != w.Length || g.StreamID != w.StreamID {
					t.Errorf("%q: %v %q, want %v %q", b, g.FrameHeader, g.Data, w.FrameHeader, w.Data())
				}
			}
		}
	}
}
