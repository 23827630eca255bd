package flow

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestSend(t *testing.T) {
	for _, c := range []struct {
		name   string
		window Send
		n      int32
		want   Send
		opened bool
		err    error
	}{
		{"it grows", 10, 5, 15, false, nil},
		{"it opens", 0, 1, 1, true, nil},
		{"it opens from below 0", -10, 11, 1, true, nil},
		{"it stays closed", -10, 10, 0, false, nil},
		{"it closes", 10, -10, 0, false, nil},
		{"it becomes negative", 10, -11, -1, false, nil},
		{"the largest", Max - 1, 1, Max, false, nil},
		{"larger than the largest", Max, 1, Max, false, ErrOverflow},
		{"the largest twice", Max, Max, Max, false, ErrOverflow},
		{"the smallest", 0, -Max, -Max, false, nil},
		{"from the smallest to the largest", -Max, Max, 0, false, nil},
	} {
		w := c.window
		opened, err := w.Grow(c.n)
		if w != c.want || opened != c.opened || !errors.Is(err, c.err) {
			t.Errorf("%s: %d, opened %t, %v", c.name, w, opened, err)
		}
	}
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}

func TestImpossible(t *testing.T) {
	negative := Send(-1)
	for name, f := range map[string]func(w Send){
		"more than there is":        func(w Send) { w.Take(11) },
		"less than nothing":         func(w Send) { w.Take(-1) },
		"from a negative window":    func(Send) { negative.Take(1) },
		"smaller than the smallest": func(Send) { w := Send(-Max); w.Grow(-1) },
	} {
		if !panics(func() { f(10) }) {
			t.Errorf("%s: no panic", name)
		}
	}
	negative.Take(0) // an empty frame needs no window
	if negative != -1 {
		t.Errorf("got %d", negative)
	}
}

// An empty frame ends a stream also when the window is negative.
func TestReceiveNegative(t *testing.T) {
	w := NewReceive(Initial)
	if !w.Take(1000) {
		t.Fatal("the peer may send it")
	}
	w.Resize(100 - Initial)
	if !w.Take(0) || w.Take(1) {
		t.Error("the window is of -900 bytes")
	}
	if n := w.Return(1000, 100); n != 1000 {
		t.Errorf("%d are returned", n)
	}
	if w.Take(101) || !w.Take(100) {
		t.Error("the window is of 100 bytes")
	}
}

// A window of one byte is returned byte by byte, and nothing is never returned.
func TestReceiveSmall(t *testing.T) {
	w := NewReceive(1)
	for range 3 {
		if n := w.Return(0, 1); n != 0 {
			t.Errorf("%d are returned", n)
		}
		if !w.Take(1) || w.Take(1) {
			t.Error("the window is of a byte")
		}
		if n := w.Return(1, 1); n != 1 {
			t.Errorf("%d are returned", n)
		}
	}
}

// A Send is what the peer has granted and not received, however that comes to be: it is never larger than Max, and
// opened is reported once for each time that it opens.
func TestSendRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.OneOf(rapid.Int64Range(0, 10), rapid.Int64Range(0, Max), rapid.Just[int64](Max))
		initial := sizes.Draw(t, "initial")
		w := Send(initial)
		granted, sent := int64(0), int64(0)
		size := func() int64 { return initial + granted - sent }
		grow := func(n int64) bool {
			before := w
			opened, err := w.Grow(int32(n))
			after := int64(before) + n
			if want := after > Max; (err != nil) != want {
				t.Fatalf("%d + %d: %v", before, n, err)
			} else if err != nil {
				if w != before || opened {
					t.Fatalf("%d + %d fails, and the window is %d, opened %t", before, n, w, opened)
				}
				return false
			}
			if opened != (before <= 0 && after > 0) {
				t.Fatalf("%d + %d: opened %t", before, n, opened)
			}
			return true
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if int64(w) != size() || w.Available() != int(max(size(), 0)) {
					t.Fatalf("the window is %d with %d available, want %d", w, w.Available(), size())
				}
			},
			"send": func(t *rapid.T) {
				n := rapid.IntRange(0, w.Available()).Draw(t, "n")
				w.Take(n)
				sent += int64(n)
			},
			"WINDOW_UPDATE": func(t *rapid.T) {
				if n := max(sizes.Draw(t, "n"), 1); grow(n) {
					granted += n
				}
			},
			"SETTINGS": func(t *rapid.T) {
				if to := sizes.Draw(t, "to"); grow(to - initial) {
					initial = to
				}
			},
		})
	})
}

// Both sides agree on a window: what a Receive returns is what the peer's Send gets, each byte once and only after it
// was used, and when it is half of the window. Until the peer has acknowledged the settings, the window is Initial, or
// larger, and what is returned goes by the smaller size already.
func TestReceiveRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.Int32Range(1, 10), rapid.Int32Range(1, 4<<20)).Draw(t, "size")
		whole := max(size, Initial)
		w, peer := NewReceive(whole), Send(whole)
		received, used, returned := int64(0), int64(0), int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if peer != Send(w.open) || int64(w.open) != int64(whole)-received+returned {
					t.Fatalf("the window is %d, for the peer %d", w.open, peer)
				}
				if due := used - returned; due != int64(w.used) || due > 0 && due >= int64(size/2) {
					t.Fatalf("%d are not returned, of a window of %d", due, size)
				}
			},
			"the peer sends": func(t *rapid.T) {
				n := rapid.IntRange(0, peer.Available()).Draw(t, "n")
				if peer.Take(n); !w.Take(int32(n)) {
					t.Fatalf("%d of %d are too many", n, w.open)
				}
				received += int64(n)
			},
			"the peer sends too much": func(t *rapid.T) {
				if n := int32(peer.Available()) + rapid.Int32Range(1, 100).Draw(t, "more"); w.Take(n) {
					t.Fatalf("%d are taken of %d", n, peer)
				}
			},
			"bytes are used": func(t *rapid.T) {
				n := rapid.Int64Range(0, received-used).Draw(t, "n")
				used += n
				increment := w.Return(int32(n), size)
				if due := used - returned; increment != 0 && int64(increment) != due {
					t.Fatalf("%d of %d are returned", increment, due)
				}
				if increment > 0 {
					if _, err := peer.Grow(increment); err != nil {
						t.Fatal(err)
					}
				}
				if returned += int64(increment); returned > used {
					t.Fatalf("%d are returned of %d", returned, used)
				}
			},
			"the peer acknowledges": func(t *rapid.T) {
				w.Resize(size - whole)
				if _, err := peer.Grow(size - whole); err != nil {
					t.Fatal(err)
				}
				whole = size
			},
		})
	})
}
