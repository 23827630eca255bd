package http2

import (
	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/park/http2/internal/flow"
	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// queueSettings queues the server's preface.
func (c *conn) queueSettings() {
	s, o := c.server, getOut()
	settings := []http2.Setting{
		{ID: http2.SettingMaxFrameSize, Val: uint32(s.readFrameSize())},
		{ID: http2.SettingMaxConcurrentStreams, Val: uint32(s.maxStreams())},
		{ID: http2.SettingMaxHeaderListSize, Val: s.maxHeaderList()},
		{ID: http2.SettingHeaderTableSize, Val: s.tableSize()},
		{ID: http2.SettingInitialWindowSize, Val: uint32(s.streamWindow())},
		{ID: http2.SettingEnableConnectProtocol, Val: 1},
	}
	if !s.ExtendedConnect {
		settings = settings[:len(settings)-1]
	}
	o.b = wire.AppendSettings(o.b, settings...)
	if n := s.connWindow() - flow.Initial; n > 0 {
		o.b = wire.AppendWindowUpdate(o.b, 0, n)
	}
	c.out = o
}

// handleSettings handles a SETTINGS frame. The caller holds c.mu.
func (c *conn) handleSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		if c.opening == opened {
			return c.server.count("ack_mystery", http2.ConnectionError(http2.ErrCodeProtocol))
		}
		before := c.streamWindow()
		c.setOpening(opened)
		for _, st := range c.streams {
			st.inflow.Resize(c.streamWindow() - before)
		}
		return nil
	}
	if err := c.ask(); err != nil {
		return err
	}
	if f.NumSettings() > maxSettings {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	// The streams are changed once, by the last value.
	initial := c.initial
	err := f.ForeachSetting(func(s http2.Setting) error {
		if s.ID == http2.SettingInitialWindowSize {
			initial = int32(s.Val)
		}
		if s.ID == http2.SettingHeaderTableSize {
			c.encoder.Resize(s.Val)
		}
		return s.Valid() // frames are never larger than every client allows
	})
	if err != nil {
		return err
	}
	if change := initial - c.initial; change != 0 {
		c.initial = initial
		for _, st := range c.streams {
			if err := st.grow(change); err != nil {
				return c.server.count("setting_win_size", http2.ConnectionError(http2.ErrCodeFlowControl))
			}
		}
	}
	c.buffer().b = wire.AppendFrame(c.buffer().b, http2.FrameSettings, http2.FlagSettingsAck, 0, 0)
	return nil
}

// streamWindow returns what the client may send on a new stream: until it has acknowledged the server's settings it may not
// know them, and may use a larger window already. The caller holds c.mu.
func (c *conn) streamWindow() int32 {
	if c.opening == opened {
		return c.server.streamWindow()
	}
	return max(flow.Initial, c.server.streamWindow())
}
