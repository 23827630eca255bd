package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/pires/go-proxyproto"
)

// targets are the servers that a proxy passes on to.
type targets struct {
	all  []*target
	turn atomic.Uint64
}

// A target is one of them.
type target struct {
	address string
	down    atomic.Bool // the latest check has failed
}

// next returns the server whose turn it is, of those that are not down. If all are, it returns one
// of them.
func (t *targets) next() *target {
	first := t.turn.Add(1)
	for i := range uint64(len(t.all)) {
		if one := t.all[(first+i)%uint64(len(t.all))]; !one.down.Load() {
			return one
		}
	}
	return t.all[first%uint64(len(t.all))]
}

// check checks a server until the context is done.
func (t *target) check(ctx context.Context, p *proxy) {
	if p.proxyFlags.check == 0 {
		return
	}
	for {
		err := t.probe(ctx, p)
		if ctx.Err() != nil {
			return
		}
		if down := err != nil; t.down.Swap(down) != down {
			if down {
				p.log.Warn("a server is down", "address", t.address, "err", err)
			} else {
				p.log.Info("a server is up", "address", t.address)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.proxyFlags.check):
		}
	}
}

// probe checks a server once.
func (t *target) probe(ctx context.Context, p *proxy) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if p.checkPath == "" {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", t.address)
		if err == nil {
			conn.Close()
		}
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.address+p.checkPath, nil)
	if err != nil {
		return err
	}
	answer, err := p.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("answered %s", answer.Status)
	}
	return nil
}

// networks are the values of a flag.
type networks []netip.Prefix

func parseNetworks(flag string, texts []string) (all networks, err error) {
	for _, s := range texts {
		n, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		all = append(all, n)
	}
	return all, nil
}

// contain reports whether an address with a port is in one of the networks, in which zones do not
// matter.
func (n networks) contain(address string) bool {
	a, err := netip.ParseAddrPort(address)
	for _, one := range n {
		if err == nil && one.Contains(a.Addr().Unmap().WithZone("")) {
			return true
		}
	}
	return false
}

// listener reads headers of the PROXY protocol from the connections of the networks, which must
// begin with one. From others a header is no different from other bytes.
func (n networks) listener(l net.Listener) net.Listener {
	if len(n) == 0 {
		return l
	}
	return &proxyproto.Listener{Listener: l, ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
		if n.contain(o.Upstream.String()) {
			return proxyproto.REQUIRE, nil
		}
		return proxyproto.SKIP, nil
	}}
}
