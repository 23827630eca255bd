package http2

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// parts returns the lengths of the parts of frames that the parked connections keep.
func (s *Server) parts() (all []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.mu.Lock()
		if c.reader == readerParked {
			all = append(all, len(c.rest))
		}
		c.mu.Unlock()
	}
	return all
}

// A parked connection keeps at most 16 KiB of a frame that is not of a header block, wherever the
// part ends. The handler gets what has come of a DATA frame, and at the end all of it.
func TestPartsOfLargeFrames(t *testing.T) {
	const size = largeIn - wire.HeaderSize
	data := pattern(size)
	for _, c := range []struct {
		name    string
		kind    http2.FrameType
		flags   http2.Flags
		padding int
	}{
		{"data", http2.FrameData, http2.FlagDataEndStream, 0},
		{"padded data", http2.FrameData, http2.FlagDataEndStream | http2.FlagDataPadded, 200},
		{"data with a padding of 0", http2.FrameData,
			http2.FlagDataEndStream | http2.FlagDataPadded, 0},
		{"unknown", 99, 1, 0},
		{"GOAWAY", http2.FrameGoAway, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			read := make(chan int, 1000)
			s := &Server{Linger: -1, Server: handler(func(w http.ResponseWriter, r *http.Request) {
				body, buf := []byte(nil), make([]byte, 1000)
				for {
					n, err := r.Body.Read(buf)
					body = append(body, buf[:n]...)
					if err == io.EOF {
						break
					} else if err != nil {
						t.Error(err)
						return
					}
				}
				read <- len(body)
				fmt.Fprint(w, bytes.Equal(body, data[:len(body)]))
			})}
			p := dial(t, serve(t, s, false))
			p.open(1, "/", false)
			payload, want := bytes.Clone(data), 0
			if c.kind == http2.FrameData {
				if want = size; c.flags.Has(http2.FlagDataPadded) {
					want = size - 1 - c.padding
					payload = append([]byte{byte(c.padding)}, data[:want]...)
					payload = append(payload, make([]byte, c.padding)...)
				}
			} else if c.kind == http2.FrameGoAway {
				clear(payload[:8])
			}
			stream := uint32(1)
			if c.kind == http2.FrameGoAway {
				stream = 0
			}
			frame := append(wire.AppendFrame(nil, c.kind, c.flags, stream, size), payload...)
			must(t, p.send())
			for at, piece := range []int{9, 100, 17_000, 20_000, 20, 8000, len(frame)} {
				n := min(piece, len(frame))
				parks := s.Stats().Parks
				p.out.Write(frame[:n])
				frame = frame[n:]
				must(t, p.send())
				if len(frame) == 0 {
					break
				}
				var parts []int
				until(t, fmt.Sprint("it is parked after piece ", at), func() bool {
					parts = s.parts()
					return len(parts) == 1 && s.Stats().Parks > parks
				})
				if parts[0] > maxPart {
					t.Errorf("after piece %d it keeps %d bytes", at, parts[0])
				}
			}
			if c.kind != http2.FrameData {
				p.WriteData(1, true, nil)
				must(t, p.send())
			}
			p.want("1 status 200", `1 data "true" end true`)
			if n := <-read; n != want {
				t.Errorf("the body has %d bytes, want %d", n, want)
			}
			p.synced()
		})
	}
}

// Control frames are never large.
func TestLargeControlFrames(t *testing.T) {
	kinds := []http2.FrameType{http2.FrameSettings, http2.FramePing, http2.FrameWindowUpdate}
	for _, kind := range kinds {
		p := dial(t, serve(t, &Server{Linger: -1, Server: handler(echo)}, false))
		p.out.Write(wire.AppendFrame(nil, kind, 0, 0, 30_000))
		p.out.Write(make([]byte, 20_000))
		must(t, p.send())
		p.want("goaway 0 FRAME_SIZE_ERROR")
	}
}

// A part of a header block does not outlive ReadHeaderTimeout, also while streams are open: nothing
// else can follow it. A part of another frame does.
func TestPartOfBlockWithStreams(t *testing.T) {
	for _, linger := range []time.Duration{-1, 0} {
		for name, part := range map[string][]byte{
			"half a HEADERS frame": append(wire.AppendFrame(nil, http2.FrameHeaders, 0, 3, 30_000), 1, 2, 3),
			"half a block":         append(wire.AppendFrame(nil, http2.FrameHeaders, 0, 3, 1), 0x82),
			"half a PING":          append(wire.AppendFrame(nil, http2.FramePing, 0, 0, 8), 1, 2, 3),
		} {
			hs := handler(func(w http.ResponseWriter, r *http.Request) {
				w.(http.Flusher).Flush()
				io.Copy(io.Discard, r.Body)
			})
			hs.ReadHeaderTimeout = 30 * time.Millisecond
			s := &Server{Linger: linger, Server: hs}
			url := serve(t, s, false)
			p := dial(t, url)
			p.open(1, "/", false)
			must(t, p.send())
			p.want("1 status 200")
			p.out.Write(part)
			must(t, p.send())
			if name != "half a PING" {
				p.want("goaway 1 NO_ERROR")
				continue
			}
			// The timeout is over when it has ended a connection that began later.
			later := dial(t, url)
			later.out.Write([]byte{0})
			must(t, later.send())
			later.want("goaway 0 NO_ERROR")
			p.out.Write(make([]byte, 5))
			must(t, p.send())
			p.want("PING")
		}
	}
}
