package chat_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/socknotify/socknotify/internal/test/freeport"
)

// A program is examples/sse, which runs.
type program struct {
	*exec.Cmd
	addr string
}

// startSSE runs the program on an address.
func startSSE(t *testing.T, path, addr string) *program {
	t.Helper()
	p := &program{exec.Command(path, "-addr", addr), addr}
	must(t, p.Start())
	t.Cleanup(func() { p.Process.Kill() })
	until(t, "the program serves", func() bool {
		answer, err := http.Get("http://" + addr + "/")
		if err == nil {
			answer.Body.Close()
		}
		return err == nil
	})
	return p
}

// stop ends the program as a terminal does.
func (p *program) stop(t *testing.T) {
	t.Helper()
	must(t, p.Process.Signal(os.Interrupt))
	must(t, p.Wait())
}

// say sends a message as another page does.
func (p *program) say(t *testing.T, text string) {
	t.Helper()
	answer, err := http.Post("http://"+p.addr+"/say", "text/plain", strings.NewReader(text))
	must(t, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
}

// A page of examples/sse gets what is said, and what it has missed while the program was replaced.
func TestServerSentEvents(t *testing.T) {
	b := newTab(t)
	path := filepath.Join(t.TempDir(), "sse")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/socknotify/socknotify/examples/sse").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := startSSE(t, path, freeport.Addrs(t, 1)[0])
	p.say(t, "before")
	b.Do(chromedp.Navigate("http://" + p.addr + "/"))
	const open = "document.querySelector('p').textContent === 'Connected'"
	const shown = "[...document.querySelectorAll('li')].map(e => e.textContent).join('|')"
	b.Until("it connects", open)
	b.Until("it gets the history", shown+" === 'before'")
	b.Do(chromedp.SendKeys(chromedp.CSS("input"), "hello <b>"+kb.Enter))
	b.Until("what it says comes back", shown+" === 'before|hello <b>' && document.querySelector('input').value === ''")
	p.say(t, "two\nlines")
	b.Until("others are heard", shown+" === 'before|hello <b>|two\\nlines'")
	b.Picture("sse-page")

	p.stop(t)
	b.Until("it notices", "document.querySelector('p').textContent === 'Disconnected'")
	p = startSSE(t, path, p.addr)
	for _, text := range []string{"1", "2", "3", "missed"} { // a new process begins with 1
		p.say(t, text)
	}
	// It may come back before some of them were said.
	b.Until("it comes back with its last id, and gets what it has missed",
		open+" && /^before.hello <b>.two\\nlines(.1)?(.2)?(.3)?.missed$/.test("+shown+")")
	p.say(t, "after")
	b.Until("it goes on", shown+".endsWith('|missed|after')")
	p.stop(t)
	close(b.wrong)
	for text := range b.wrong {
		t.Errorf("the page: %s", text)
	}
}
