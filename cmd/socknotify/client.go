package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/socknotify/socknotify/internal/debugdata"
)

// A debugClient requests the views of a live page.
type debugClient struct {
	base *url.URL
	http http.Client
}

// newDebugClient takes host:port, or the URL of the page.
func newDebugClient(where string) (*debugClient, error) {
	text := where
	if !strings.Contains(text, "://") {
		text = "http://" + text + debugPath
	}
	u, err := url.Parse(text)
	if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		err = fmt.Errorf("want http or https, and a host")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: must be the host:port or the URL of a debug page: %w", where, err)
	}
	if !strings.HasSuffix(u.Path, "/") {
		u.Path += "/"
	}
	return &debugClient{base: u, http: http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}}, nil
}

// close closes the idle connections.
func (c *debugClient) close() { c.http.CloseIdleConnections() }

// get requests a view and decodes it.
func (c *debugClient) get(ctx context.Context, view string, query url.Values, v any) error {
	body, err := c.open(ctx, view, query)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(v); err != nil {
		return fmt.Errorf("%s: %w; is it a socknotify debug page?", c.base, err)
	}
	return nil
}

// open requests a view and returns the body of the response.
func (c *debugClient) open(ctx context.Context, view string, query url.Values) (io.ReadCloser, error) {
	u := *c.base
	u.Path += view
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	var why debugdata.Failure
	if json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&why) != nil || why.Error == "" {
		why.Error = "is it a socknotify debug page?"
	}
	return nil, fmt.Errorf("%s: %s: %s", c.base, resp.Status, printable(why.Error))
}

// printable replaces control characters: keys and errors come from another program, and must not control the
// terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}
