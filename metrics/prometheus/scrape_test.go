package prometheus_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/tunnel"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/freeport"
	"github.com/socknotify/socknotify/metrics/prometheus"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/server"
)

// limit is the time that a test waits for anything that must happen.
const limit = 2 * time.Minute

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	await.Until(t, what, condition)
}

type echo struct{}

func (echo) Open(*server.Conn[struct{}]) error   { return nil }
func (echo) Close(*server.Conn[struct{}], error) {}
func (echo) Data(c *server.Conn[struct{}], buf []byte) error {
	n, err := c.Read(buf)
	if err == nil {
		_, err = c.Write(buf[:n])
	}
	return err
}

func echoBlocking(c net.Conn) error {
	var b [5]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return err
	}
	_, err := c.Write(b[:])
	return err
}

// A world is a process with everything that a Collector can collect, and what has been moved through it.
type world struct {
	*prometheus.Collector
	echo          *server.Server[struct{}]
	tls           *server.Server[struct{}]
	lines         *park.Server
	web           *park.HTTPServer
	addr, tlsAddr string
	lineAddr      string
	webURL        string
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve runs a server until the test ends.
func serve(t *testing.T, run func() error, stop func(context.Context) error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- run() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		stop(ctx)
		<-done
		stop(context.Background())
	})
}

func newWorld(t *testing.T) *world {
	t.Helper()
	certified := httptest.NewTLSServer(nil)
	config := &tls.Config{Certificates: certified.TLS.Certificates}
	certified.Close()
	w := &world{
		Collector: new(prometheus.Collector),
		echo:      &server.Server[struct{}]{Handler: echo{}, TimeCalls: true, MaxConns: 3},
		tls:       &server.Server[struct{}]{Handler: echo{}, TimeCalls: true, TLSConfig: config},
		lines:     &park.Server{Handler: echoBlocking, TimeCalls: true},
		web: &park.HTTPServer{Linger: -1, TimeCalls: true, Server: &http.Server{Handler: http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				park.Suspend(w, r, func(q *park.Suspended) { q.Resume() },
					func(w http.ResponseWriter, r *http.Request, _ *park.Suspended) { io.WriteString(w, "hello") })
			})}},
	}
	one, two, three, four := listen(t), listen(t), listen(t), listen(t)
	w.addr, w.tlsAddr, w.lineAddr, w.webURL = one.Addr().String(), two.Addr().String(), three.Addr().String(), "http://"+four.Addr().String()
	serve(t, func() error { return w.echo.Serve(one) }, w.echo.Shutdown)
	serve(t, func() error { return w.tls.ServeTLS(two, "", "") }, w.tls.Shutdown)
	serve(t, func() error { return w.lines.Serve(three) }, w.lines.Shutdown)
	serve(t, func() error { return w.web.Serve(four) }, w.web.Shutdown)
	for _, ready := range []func() bool{w.echo.Ready, w.tls.Ready, w.lines.Ready, w.web.Ready} {
		until(t, "the servers", ready)
	}
	w.Add("echo", w.echo.Ports()[0])
	w.AddServer("echo", w.echo)
	w.AddServer("tls", w.tls)
	w.AddTunnels("tunnels", new(tunnel.Tunnels))
	w.AddParkServer("lines", w.lines)
	w.AddHTTPServer("web", w.web)
	w.AddLot("lot", w.lines.Lots()[0])
	return w
}

// talk has each server answer once on a new connection, and two of them refuse something.
func (w *world) talk(t *testing.T) {
	t.Helper()
	say := func(c net.Conn, err error) net.Conn {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(limit))
		c.Write([]byte("hello"))
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	var all []net.Conn
	for range 3 {
		all = append(all, say(net.Dial("tcp", w.addr)))
	}
	if refused, err := net.Dial("tcp", w.addr); err == nil {
		refused.Read(make([]byte, 1))
		refused.Close()
	}
	all = append(all, say(tls.Dial("tcp", w.tlsAddr, &tls.Config{InsecureSkipVerify: true})), say(net.Dial("tcp", w.lineAddr)))
	if broken, err := net.Dial("tcp", w.tlsAddr); err == nil {
		broken.Write([]byte("not TLS at all"))
		io.Copy(io.Discard, broken)
		broken.Close()
	}
	r, err := http.Get(w.webURL)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, r.Body)
	r.Body.Close()
	for _, c := range all {
		c.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	until(t, "the connections to end", func() bool { return w.echo.Stats().Conns == 0 && w.tls.Stats().Conns == 0 })
}

// handler answers scrapes.
func (w *world) handler() http.Handler {
	r := client.NewPedanticRegistry()
	r.MustRegister(w)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
}

func TestServers(t *testing.T) {
	w := newWorld(t)
	w.talk(t)
	until(t, "the counts", func() bool {
		st := w.echo.Stats()
		return w.web.Stats().Conns == 0 && st.BytesOut == 15 && st.Calls >= 3 && st.Running == 0 && w.lines.Stats().Conns == 0
	})
	answer := httptest.NewRecorder()
	w.handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	text := answer.Body.String()
	for _, want := range []string{
		`socknotify_server_connections{server="echo",state="open"} 0`,
		`socknotify_server_accepted_connections_total{server="echo"} 3`,
		`socknotify_server_refused_connections_total{limit="connections",server="echo"} 1`,
		`socknotify_server_refused_connections_total{limit="connections_per_address",server="echo"} 0`,
		`socknotify_server_io_bytes_total{direction="receive",server="echo"} 15`,
		`socknotify_server_io_bytes_total{direction="transmit",server="echo"} 15`,
		`socknotify_server_handshakes_total{server="tls"} 1`,
		`socknotify_server_failed_handshakes_total{cause="error",server="tls"} 1`,
		`socknotify_server_timeouts_total{kind="handshake",server="tls"} 0`,
		fmt.Sprintf(`socknotify_server_call_duration_seconds_count{server="echo"} %d`, w.echo.Stats().CallTime.Count()),
		`socknotify_server_call_duration_seconds_bucket{server="echo",le="10"} `,
		fmt.Sprintf(`socknotify_park_calls_total{server="lines"} %d`, w.lines.Stats().Calls),
		`socknotify_park_requests_total{server="web"} 1`,
		`socknotify_park_open_connections{server="web"} 0`,
		`socknotify_park_accepted_connections_total{server="web"} 1`,
		fmt.Sprintf(`socknotify_park_call_duration_seconds_count{server="web"} %d`, w.web.Stats().CallTime.Count()),
		`socknotify_park_connections{server="lot",state="parked"} `,
		`socknotify_notifications_total{backend="`,
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	w.Remove("echo")
	answer = httptest.NewRecorder()
	w.handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if strings.Contains(answer.Body.String(), `"echo"`) {
		t.Errorf("after Remove:\n%s", answer.Body)
	}
	if out, err := promtool(t, text, "check", "metrics"); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	if out, err := promtool(t, "", "check", "rules", "alerts.yml"); err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
}

// promtool runs Prometheus' tool, if it is there.
func promtool(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("promtool is not on PATH, so its checks are left out")
		return "", nil
	}
	cmd := exec.Command(path, args...)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The real Prometheus scrapes the servers under load. What it has stored equals the servers' own counts, and every
// expression of the dashboard finds something.
func TestPrometheus(t *testing.T) {
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not on PATH")
	}
	w := newWorld(t)
	target := httptest.NewServer(w.handler())
	t.Cleanup(target.Close)
	dir := t.TempDir()
	rules, err := filepath.Abs("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\n"+
		"scrape_configs: [{job_name: shop, static_configs: [{targets: [%q]}]}]\n", rules, target.Listener.Addr().String())
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	addr := freeport.Addrs(t, 1)[0]
	var log bytes.Buffer
	cmd := exec.Command(path, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+addr)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		<-ended
		http.DefaultClient.CloseIdleConnections()
		if t.Failed() {
			t.Logf("prometheus:\n%s", log.String())
		}
	})
	p := &prom{t, "http://" + addr, ended}
	w.talk(t)
	p.until(`up{job="shop"}`, 1)
	for _, metric := range []struct {
		expr string
		want func() float64
	}{
		{`socknotify_server_io_bytes_total{server="echo",direction="transmit"}`, func() float64 { return float64(w.echo.Stats().BytesOut) }},
		{`socknotify_server_calls_total{server="tls"}`, func() float64 { return float64(w.tls.Stats().Calls) }},
		{`socknotify_server_call_duration_seconds_count{server="echo"}`, func() float64 { return float64(w.echo.Stats().CallTime.Count()) }},
		{`socknotify_park_calls_total{server="lines"}`, func() float64 { return float64(w.lines.Stats().Calls) }},
		{`socknotify_park_requests_total{server="web"}`, func() float64 { return float64(w.web.Stats().Calls) }},
	} {
		if want := metric.want(); want == 0 {
			t.Errorf("%s has not moved", metric.expr)
		} else {
			p.until(metric.expr, want)
		}
	}
	w.talk(t)
	d := readDashboard(t)
	variables := strings.NewReplacer("$job", ".+", "$server", ".+", "$__rate_interval", "1m")
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			expr := variables.Replace(target.Expr)
			p.found(panel.Title, expr)
		}
	}
	until(t, "the rules to be evaluated", func() bool {
		var answer struct {
			Groups []struct {
				Rules []struct{ Health, LastError string }
			}
		}
		p.get("rules", nil, &answer)
		n := 0
		for _, g := range answer.Groups {
			for _, r := range g.Rules {
				if r.Health == "err" {
					t.Fatalf("%+v", r)
				}
				if r.Health == "ok" {
					n++
				}
			}
		}
		return n == 7
	})
}

// A prom is a running Prometheus.
type prom struct {
	*testing.T
	url   string
	ended chan struct{}
}

// get asks the API. It reports whether there was an answer.
func (p *prom) get(path string, query url.Values, data any) bool {
	p.Helper()
	select {
	case <-p.ended:
		p.Fatal("prometheus has ended")
	default:
	}
	r, err := http.Get(p.url + "/api/v1/" + path + "?" + query.Encode())
	if err != nil {
		return false // it is starting
	}
	defer r.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		return false
	}
	if answer.Status != "success" {
		p.Fatalf("%s %v: %s", path, query, answer.Error)
	}
	if err := json.Unmarshal(answer.Data, data); err != nil {
		p.Fatal(err)
	}
	return true
}

// query returns the values of an expression.
func (p *prom) query(expr string) (values []float64) {
	p.Helper()
	var data struct {
		Result []struct{ Value [2]any }
	}
	p.get("query", url.Values{"query": {expr}}, &data)
	for _, r := range data.Result {
		var v float64
		fmt.Sscan(fmt.Sprint(r.Value[1]), &v)
		values = append(values, v)
	}
	return values
}

func (p *prom) until(expr string, want float64) {
	p.Helper()
	until(p.T, fmt.Sprintf("%s = %v", expr, want), func() bool {
		v := p.query(expr)
		return len(v) == 1 && v[0] == want
	})
}

func (p *prom) found(title, expr string) {
	p.Helper()
	until(p.T, fmt.Sprintf("%s: values of %s", title, expr), func() bool { return len(p.query(expr)) > 0 })
}

// A dashboard is what Grafana imports, as far as the file uses it. Unknown fields are errors.
type dashboard struct {
	Title, UID, Description, Refresh, Timezone string
	Tags                                       []string
	SchemaVersion, Version, GraphTooltip       int
	Editable                                   bool
	Time                                       struct{ From, To string }
	Templating                                 struct{ List []variable }
	Annotations                                struct{ List []struct{} }
	Links                                      []struct{}
	Panels                                     []panel
}

type datasource struct{ Type, UID string }

type variable struct {
	Name, Type, Label, Definition, AllValue string
	Datasource                              *datasource
	Query                                   any
	Refresh, Sort, Hide                     int
	Multi, IncludeAll                       bool
	Current                                 struct{ Text, Value []string }
	Options                                 []struct{}
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Collapsed                bool
	Panels                   []struct{}
	Datasource               *datasource
	GridPos                  struct{ H, W, X, Y int }
	FieldConfig              struct {
		Defaults struct {
			Unit string
			Min  float64
		}
		Overrides []struct{}
	}
	Options struct {
		Legend struct {
			DisplayMode, Placement string
			ShowLegend             bool
			Calcs                  []string
		}
		Tooltip struct{ Mode, Sort string }
	}
	Targets []struct {
		RefID, Expr, LegendFormat string
		Datasource                *datasource
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	b, err := os.ReadFile("grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

// The dashboard has the form that Grafana imports, its panels do not overlap, and it uses metrics that exist and
// variables that are declared.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	declared := map[string]bool{"__rate_interval": true}
	for _, v := range d.Templating.List {
		declared[v.Name] = true
		if v.Type != "datasource" && v.Type != "query" {
			t.Errorf("variable %s of type %s", v.Name, v.Type)
		}
	}
	known := map[string]bool{}
	ch := make(chan *client.Desc, 1000)
	new(prometheus.Collector).Describe(ch)
	close(ch)
	name := regexp.MustCompile(`fqName: "(\w+)"`)
	for desc := range ch {
		known[name.FindStringSubmatch(desc.String())[1]] = true
	}
	used := map[string]bool{}
	metrics, variables := regexp.MustCompile(`socknotify_\w+`), regexp.MustCompile(`\$\{?(\w+)`)
	check := func(where, expr string) {
		for _, m := range metrics.FindAllString(expr, -1) {
			m = strings.TrimSuffix(m, "_bucket")
			used[m] = true
			if !known[m] {
				t.Errorf("%s: there is no metric %s", where, m)
			}
		}
		for _, v := range variables.FindAllStringSubmatch(expr, -1) {
			if !declared[v[1]] {
				t.Errorf("%s: there is no variable %s", where, v[1])
			}
		}
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %d, %q", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q overlaps %q, or is out of the grid", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		switch p.Type {
		case "row":
			continue
		case "timeseries":
		default:
			t.Errorf("panel %q of type %q", p.Title, p.Type)
		}
		if len(p.Targets) == 0 || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || p.Datasource == nil || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q lacks something", p.Title)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if refs[target.RefID] || target.RefID == "" || target.LegendFormat == "" {
				t.Errorf("panel %q: target %q", p.Title, target.RefID)
			}
			refs[target.RefID] = true
			check(p.Title, target.Expr)
		}
	}
	for m := range known {
		if strings.HasPrefix(m, "socknotify_server_") && !used[m] {
			t.Errorf("no panel shows %s", m)
		}
	}
	rules, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`socknotify_\w+`).FindAllString(string(rules), -1) {
		if m = strings.TrimSuffix(m, "_bucket"); !known[m] && m != "socknotify_" {
			t.Errorf("alerts: there is no metric %s", m)
		}
	}
}
