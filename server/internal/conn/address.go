package conn

import (
	"crypto/tls"
	"log/slog"
	"net"
)

func (c *Conn) LocalAddr() net.Addr { return c.address(true) }

func (c *Conn) RemoteAddr() net.Addr { return c.address(false) }

func (c *Conn) address(local bool) net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.extra; x != nil && x.preamble != nil {
		a := x.preamble.Remote
		if local {
			a = x.preamble.Local
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
	if !c.link.listener.TCP {
		a := &net.UnixAddr{Net: "unix"}
		if local {
			a.Name = c.Socket().LocalPath()
		}
		return a
	}
	a := c.Socket().RemoteAddr()
	if local {
		a = c.Socket().LocalAddr()
	}
	if !a.IsValid() {
		return nil
	}
	return net.TCPAddrFromAddrPort(a)
}

func (c *Conn) LogValue() slog.Value {
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

func (c *Conn) DropCertificates() {
	if t := c.tls(); t != nil {
		t.dropPeer()
	}
}

func (c *Conn) TLS() *tls.ConnectionState {
	t := c.tls()
	if t == nil {
		return nil
	}
	state := t.state()
	return &state
}
