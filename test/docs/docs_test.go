// Package docs_test keeps the documents true to the code.
package docs_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/internal/test/conformance"
)

// Every sentence that has a conformance case is in the contract.
func TestContractHasEverySentence(t *testing.T) {
	text := read(t, "contract.md")
	for _, s := range conformance.Sentences() {
		if !strings.Contains(text, "\n- **"+s+"** ") {
			t.Errorf("contract.md has no sentence %s", s)
		}
	}
}

// Every sentence without a conformance case names another test.
func TestEverySentenceHasATest(t *testing.T) {
	has := map[string]bool{}
	for _, s := range conformance.Sentences() {
		has[s] = true
	}
	for _, item := range strings.Split(read(t, "contract.md"), "\n- **")[1:] {
		item, _, _ = strings.Cut(item, "\n\n")
		sentence, _, _ := strings.Cut(item, "**")
		if !has[sentence] && !strings.Contains(item, "→") {
			t.Errorf("%s has neither a conformance case nor another test", sentence)
		}
	}
}

// The documents stay short: what a new page adds, others lose.
func TestWords(t *testing.T) {
	const most = 30_000
	n := 0
	for _, path := range documents(t) {
		if strings.HasPrefix(path, "../docs/") {
			n += len(strings.Fields(read(t, path)))
		}
	}
	if n > most {
		t.Errorf("the documents have %d words; at most %d", n, most)
	}
}

// The fact sheet in platforms.md has every row that the test prints.
func TestFactSheetIsComplete(t *testing.T) {
	text := read(t, "platforms.md")
	for _, name := range conformance.Facts() {
		if !strings.Contains(text, "\n| "+name+" | ") {
			t.Errorf("platforms.md has no row %q: run go test ./internal/test/conformance -run Facts -v", name)
		}
	}
}

// Each row of porting.md names sentences of the contract.
func TestPortingNamesSentences(t *testing.T) {
	contract, rows := read(t, "contract.md"), 0
	for _, line := range strings.Split(read(t, "porting.md"), "\n") {
		cells := strings.Split(line, " | ")
		if len(cells) != 5 || strings.HasPrefix(line, "| | ") || strings.HasPrefix(line, "| --- ") {
			continue
		}
		rows++
		for _, s := range strings.Split(cells[3], ", ") {
			if !strings.Contains(contract, "**"+s+"**") && !strings.Contains(contract, " "+s+", ") {
				t.Errorf("%s: the contract has no sentence %q", cells[0], s)
			}
		}
	}
	if rows < 30 {
		t.Errorf("only %d rows in porting.md", rows)
	}
}

// The index of each folder links every document in the folder, and the index of each folder below.
func TestIndex(t *testing.T) {
	for _, path := range documents(t) {
		name, ok := strings.CutPrefix(path, "../docs/")
		if !ok || name == "README.md" {
			continue
		}
		index, link := "README.md", name
		if dir, file, below := strings.Cut(name, "/"); below && file != "README.md" {
			index, link = dir+"/README.md", file
		}
		if !slices.ContainsFunc(parse(index, read(t, index)).links, func(l words) bool { return l.text == link }) {
			t.Errorf("%s does not link %s", index, link)
		}
	}
}

var testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]\w+$`)

// The tests that the documents name exist.
func TestNamedTests(t *testing.T) {
	var code strings.Builder
	for _, path := range files(t, "_test.go") {
		code.WriteString(read(t, path))
	}
	for _, doc := range documents(t) {
		for _, named := range parse(doc, read(t, doc)).code {
			if testName.MatchString(named.text) && !strings.Contains(code.String(), "func "+named.text+"(") {
				t.Errorf("%s names %s, which does not exist", doc, named.text)
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The script of each sentence, which the conformance suite runs, begins with the contract's words.
func TestScriptsQuoteTheContract(t *testing.T) {
	contract := map[string]string{}
	arrow := regexp.MustCompile(` → [^→]*$`)
	for _, item := range strings.Split(read(t, "contract.md"), "\n- **")[1:] {
		item, _, _ = strings.Cut(item, "\n\n")
		sentence, text, _ := strings.Cut(item, "**")
		contract[sentence] = arrow.ReplaceAllString(strings.Join(strings.Fields(text), " "), "")
	}
	for _, s := range conformance.Sentences() {
		var quoted []string
		for _, line := range strings.Split(read(t, "../internal/test/conformance/testdata/"+s+".txt"), "\n") {
			if words, ok := strings.CutPrefix(line, ">"); ok {
				quoted = append(quoted, strings.Fields(words)...)
			}
		}
		if got := strings.Join(quoted, " "); got != contract[s] {
			t.Errorf("%s.txt quotes\n\t%s\nand the contract says\n\t%s", s, got, contract[s])
		}
	}
}
