package debug

import (
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/debugdata"
	"github.com/socknotify/socknotify/internal/kernel/observe"
	"github.com/socknotify/socknotify/metrics"
	"github.com/socknotify/socknotify/sock"
)

// A search finds a socket by its current addresses, also if it has connected since the previous search.
func TestSearchRefreshesAddresses(t *testing.T) {
	p, err := socknotify.New[string]()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	s := newSource("p", p, keyText[string])
	c, err := sock.New(sock.UDP4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	peer, err := sock.ListenUDP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	regs := []socknotify.Registration[string]{socknotify.Enable(c, "key", socknotify.EventIn, socknotify.TriggerLevel)}
	if _, err := p.Process(regs, nil, 0); err != nil || regs[0].Result != nil {
		t.Fatal(err, regs[0].Result)
	}
	t.Cleanup(Observe(p))
	search := "/?q=" + url.QueryEscape(peer.LocalAddr().String())
	q, err := parseQuery(httptest.NewRequest("GET", search, nil))
	if err != nil {
		t.Fatal(err)
	}
	if found, err := s.query(t.Context(), q); err != nil || found.Matched != 0 {
		t.Fatalf("found %+v, %v", found, err)
	}
	if err := c.Connect(peer.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	for id, k := range s.names { // make the cache entries old
		k.at = k.at.Add(-2 * maxNamesAge)
		s.names[id] = k
	}
	if found, err := s.query(t.Context(), q); err != nil || found.Matched != 1 {
		t.Errorf("found %+v by the current address, %v", found, err)
	}
	asked := time.Now()
	for id, k := range s.names {
		k.at = k.at.Add(-2 * maxConnectedAge)
		s.names[id] = k
	}
	s.addresses(&observe.Info{ID: firstID(s)}, true)
	for _, k := range s.names {
		if k.at.After(asked) {
			t.Error("the addresses of a connected socket are read again for a search")
		}
	}
}

func firstID(s *source) (id uint64) {
	for id = range s.names {
		break
	}
	return id
}

// Every number of a service's Stats is in its ServerCounts.
func TestServerCountsAreComplete(t *testing.T) {
	t.Run("server.Server", func(t *testing.T) { everyCount(t, setServer) })
	t.Run("park", func(t *testing.T) { everyCount(t, setPark) })
}

func everyCount[S any](t *testing.T, set func(*debugdata.ServerCounts, S)) {
	var without debugdata.ServerCounts
	set(&without, *new(S))
	for _, f := range numbers(reflect.TypeFor[S](), nil) {
		var stats S
		switch field := reflect.ValueOf(&stats).Elem().FieldByIndex(f.Index); {
		case field.CanInt():
			field.SetInt(42)
		case field.CanUint():
			field.SetUint(42)
		default:
			field.Addr().Interface().(*metrics.Histogram).Buckets[0] = 42
		}
		var with debugdata.ServerCounts
		if set(&with, stats); reflect.DeepEqual(with, without) {
			t.Errorf("%s is not in ServerCounts", f.Name)
		}
	}
}

// numbers returns the fields of a struct type, and those of its structs but metrics.Histogram.
func numbers(s reflect.Type, index []int) (all []reflect.StructField) {
	for i := range s.NumField() {
		f := s.Field(i)
		f.Index = append(slices.Clone(index), i)
		if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[metrics.Histogram]() {
			all = append(all, numbers(f.Type, f.Index)...)
		} else {
			all = append(all, f)
		}
	}
	return all
}
