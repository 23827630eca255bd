package server

import (
	"crypto/tls"
	"log/slog"
	"net"
)

// LocalAddr returns the address that the peer has connected to. After a failure it can be nil.
func (c *conn) LocalAddr() net.Addr { return c.address(true) }

// RemoteAddr returns the peer's address. After a failure it can be nil.
func (c *conn) RemoteAddr() net.Addr { return c.address(false) }

func (c *conn) address(local bool) net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.extra; x != nil && x.pre != nil {
		a := x.pre.Remote
		if local {
			a = x.pre.Local
		}
		if a != nil {
			return a
		}
	}
	if c.word.Load()&wDetached != 0 {
		nc := c.extra.hijacked.nc
		if local {
			return nc.LocalAddr()
		}
		return nc.RemoteAddr()
	}
	if !c.listener.tcp {
		a := &net.UnixAddr{Net: "unix"}
		if local {
			a.Name = c.socket().LocalPath()
		}
		return a
	}
	a := c.socket().RemoteAddr()
	if local {
		a = c.socket().LocalAddr()
	}
	if !a.IsValid() {
		return nil
	}
	return net.TCPAddrFromAddrPort(a)
}

// LogValue returns the attributes of a connection for package slog: remote and local address, and the TLS version. After a
// failure the system does not know the remote address any more. Logger.With("conn", c) in Open keeps it.
func (c *conn) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 3)
	if a := c.RemoteAddr(); a != nil && a.String() != "" {
		attrs = append(attrs, slog.String("remote", a.String()))
	}
	if a := c.LocalAddr(); a != nil {
		attrs = append(attrs, slog.String("local", a.String()))
	}
	if t := c.TLS(); t != nil {
		attrs = append(attrs, slog.String("tls", tls.VersionName(t.Version)))
	}
	return slog.GroupValue(attrs...)
}

// A peer logs the address of a connection's peer, which costs a system call, only where the line is
// logged.
type peer struct{ *conn }

func (p peer) LogValue() slog.Value { return slog.StringValue(nameOfPeer(p.RemoteAddr())) }
