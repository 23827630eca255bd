package caddy

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// A lastLine is what the access log's entry about the end of a connection needs. It has no header, to
// be small.
type lastLine struct {
	access *zap.Logger
	names  []string // of the loggers below it
	level  zapcore.Level
	begin  time.Time

	method, proto, host, uri, remote, client string // of the request
}

// lastLine returns that for a request, or nil if the request is not logged.
func (p *ParkUpgrades) lastLine(r *http.Request) *lastLine {
	ctx := r.Context()
	server, _ := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if server == nil || server.Logs == nil {
		return nil
	}
	if skip, _ := caddyhttp.GetVar(ctx, caddyhttp.LogSkipVar).(bool); skip {
		return nil
	}
	names, ok := accessLoggers(server.Logs, r)
	if !ok {
		return nil
	}
	l := &lastLine{access: p.access, names: names, level: zapcore.InfoLevel, begin: time.Now(),
		method: r.Method, proto: r.Proto, host: r.Host, uri: r.RequestURI, remote: r.RemoteAddr}
	l.client, _ = caddyhttp.GetVar(ctx, caddyhttp.ClientIPVarKey).(string)
	if name, ok := caddyhttp.GetVar(ctx, caddyhttp.LogLevelVar).(string); ok {
		if level, err := zapcore.ParseLevel(name); err == nil && level >= zapcore.DebugLevel && level <= zapcore.ErrorLevel {
			l.level = level
		}
	}
	return l
}

// write writes the entry.
func (l *lastLine) write(fromClient, fromBackend uint64, err error) {
	r := &http.Request{Method: l.method, Proto: l.proto, Host: l.host, RequestURI: l.uri, RemoteAddr: l.remote}
	r = r.WithContext(context.WithValue(context.Background(), caddyhttp.VarsCtxKey, map[string]any{caddyhttp.ClientIPVarKey: l.client}))
	for _, name := range l.names {
		logger := l.access
		if name != "" {
			logger = logger.Named(name)
		}
		if entry := logger.Check(l.level, "closed upgraded connection"); entry != nil {
			entry.Write(
				zap.Object("request", caddyhttp.LoggableHTTPRequest{Request: r}),
				zap.Uint64("bytes_read", fromClient),
				zap.Duration("duration", time.Since(l.begin)),
				zap.Uint64("size", fromBackend),
				zap.Int("status", http.StatusSwitchingProtocols),
				zap.Error(err),
			)
		}
	}
}

// accessLoggers returns the names of the loggers that Caddy's access log has for a request, of which
// the empty one is the log itself. It reports whether the request is logged. Caddy has the same in
// methods of its own: shouldLogRequest and wrapLogger.
func accessLoggers(logs *caddyhttp.ServerLogConfig, r *http.Request) (names []string, ok bool) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	matches := func(pattern string) bool { return certmagic.MatchWildcard(host, pattern) }
	mapped := false
	for pattern := range logs.LoggerNames {
		mapped = mapped || matches(pattern)
	}
	if !mapped && (logs.SkipUnmappedHosts || slices.ContainsFunc(logs.SkipHosts, matches)) {
		return nil, false
	}
	if named, ok := caddyhttp.GetVar(r.Context(), caddyhttp.AccessLoggerNameVarKey).([]any); ok {
		for _, name := range named {
			if s, ok := name.(string); ok {
				names = append(names, s)
			}
		}
		return names, true
	}
	host = strings.ToLower(host)
	if names, ok := logs.LoggerNames[host]; ok {
		return names, true
	}
	labels := strings.Split(host, ".")
	for i := range labels {
		if labels[i] == "" {
			continue
		}
		labels[i] = "*"
		if names, ok := logs.LoggerNames[strings.Join(labels, ".")]; ok {
			return names, true
		}
	}
	return []string{logs.DefaultLoggerName}, true
}
