//go:build linux

package test

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var long = flag.Duration("long", 0, "how long the tests of many threads run, instead of a second")

// patience is the time that a program has at most, on a busy machine.
const patience = 5 * time.Minute

// library is where the library is built, once.
var library struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	flag.Parse()
	status := m.Run()
	if library.dir != "" {
		os.RemoveAll(library.dir)
	}
	os.Exit(status)
}

// need skips a test if one of the commands is not installed.
func need(t *testing.T, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if _, err := exec.LookPath(c); err != nil {
			t.Skip(err)
		}
	}
}

// command runs a command and returns its output. The test fails if the command does.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// built returns the folder of the library, which is built for the first test that needs it.
func built(t *testing.T) string {
	t.Helper()
	if os.Getenv("SOCKNOTIFY_C") == "" {
		t.Skip("SOCKNOTIFY_C is not set: .ci/c builds the library and runs this")
	}
	if strconv.IntSize < 64 || os.Getenv("CGO_ENABLED") == "0" {
		t.Skip("the library needs a 64-bit processor, and cgo")
	}
	need(t, "gcc", "make", "go")
	l := &library
	l.once.Do(func() {
		if l.dir, l.err = os.MkdirTemp("", "socknotify-c"); l.err != nil {
			return
		}
		cmd := exec.Command("make", "-s", "-C", "..", "shared", "BUILD="+l.dir)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			l.err = fmt.Errorf("%w\n%s", err, out)
		} else if len(out) > 0 {
			l.err = fmt.Errorf("make writes\n%s", out)
		}
	})
	if l.err != nil {
		t.Fatal(l.err)
	}
	return l.dir
}

// compile compiles a program, and returns its path. Warnings fail the test.
func compile(t *testing.T, compiler, file string, flags ...string) string {
	t.Helper()
	return compileWith(t, built(t), compiler, file, flags...)
}

// compileWith compiles a program with the library in a folder.
func compileWith(t *testing.T, lib, compiler, file string, flags ...string) string {
	t.Helper()
	need(t, compiler)
	program := filepath.Join(t.TempDir(), "program")
	args := append([]string{"-g", "-Wall", "-Wextra", "-Werror", "-I../include", "-I../include/windows"}, flags...)
	args = append(args, file, "-o", program, "-L"+lib, "-lsocknotify", "-Wl,-rpath,"+lib, "-lpthread", "-ldl")
	command(t, "", compiler, args...)
	return program
}

// run runs a program on a backend, and returns its output.
func run(t *testing.T, backend, program string, args ...string) string {
	t.Helper()
	out, err := start(t, nil, backend, program, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", backend, err, out)
	}
	return out
}

// runAlone is run in a network namespace of the program's own, where the system allows it, because
// the page's programs use a fixed port.
func runAlone(t *testing.T, backend, program string) string {
	t.Helper()
	out, err := start(t, &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}, backend, program)
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Logf("no namespace: %v", err)
		return run(t, backend, program)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", backend, err, out)
	}
	return out
}

func start(t *testing.T, attr *syscall.SysProcAttr, backend, program string, args ...string) (string, error) {
	ctx, stop := context.WithTimeout(t.Context(), patience+*long)
	defer stop()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "SOCKNOTIFY_BACKEND="+backend)
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// onEach runs a test on each backend.
func onEach(t *testing.T, f func(t *testing.T, backend string)) {
	for _, b := range []string{"epoll", "poll"} {
		t.Run(b, func(t *testing.T) { f(t, b) })
	}
}

// The flags with which the page's programs compile: they jump over initializations, do not use all
// that they have, and one of them returns a variable that was never set (see page/server.cpp).
var pageFlags = []string{"-fpermissive", "-w", "-ftrivial-auto-var-init=zero"}

// The programs of Microsoft's page compile unchanged, run, and do what the page says. Its listings
// are not in the tree; an environment variable names a file that has them. See page/README.md.
func TestListings(t *testing.T) {
	listings := os.Getenv("SOCKNOTIFY_LISTINGS")
	if listings == "" {
		t.Skip("left out: SOCKNOTIFY_LISTINGS names no file with the page's listings")
	}
	text, err := os.ReadFile(listings)
	if err != nil {
		t.Fatal(err)
	}
	const tried = "813971ada81e8308f6df2cd436bb58dd804a88f14050244df4e7b6310970c090"
	if got := fmt.Sprintf("%x", sha256.Sum256(text)); got != tried {
		t.Logf("%s is not the text that the drivers were written for: its checksum is %s", listings, got)
	}
	flags := append(pageFlags, "-Ipage", "-DLISTINGS="+strconv.Quote(listings))
	for _, p := range []struct{ name, says string }{
		{"poll", "Client hung up. Exiting."},
		{"edge", "Received all data. Exiting..."},
		{"server", "Waiting for 16 server threads to exit..."},
	} {
		t.Run(p.name, func(t *testing.T) {
			need(t, "g++")
			program := compile(t, "g++", "page/"+p.name+".cpp", flags...)
			onEach(t, func(t *testing.T, backend string) {
				if out := runAlone(t, backend, program); !strings.Contains(out, p.says) {
					t.Errorf("the program does not say %q:\n%s", p.says, out)
				}
			})
		})
	}
}

// The library exports the functions of its header and nothing else.
func TestSymbols(t *testing.T) {
	lib := built(t)
	need(t, "nm")
	var header []byte
	for _, name := range []string{"socknotify.h", "win32.h"} {
		text, err := os.ReadFile("../include/" + name)
		if err != nil {
			t.Fatal(err)
		}
		header = append(header, text...)
	}
	exported := map[string]bool{}
	for line := range strings.Lines(command(t, lib, "nm", "-D", "--defined-only", "libsocknotify.so")) {
		exported[strings.Fields(line)[2]] = true
	}
	for name := range exported {
		if !strings.Contains(string(header), name+"(") {
			t.Errorf("%s is exported, and not in the header", name)
		}
	}
	for line := range strings.Lines(string(header)) {
		_, rest, ok := strings.Cut(line, "sn_")
		name, _, call := strings.Cut(rest, "(")
		if ok && call && !strings.HasPrefix(line, "static") && !strings.HasPrefix(line, " ") && !exported["sn_"+name] {
			t.Errorf("sn_%s is in the header, and not exported", name)
		}
	}
}

// programs are the test programs in C.
var programs = []string{
	"errors", "edge", "waiters", "fork", "signals", "overlapped", "poll", "datagrams", "server",
	"reuse", "sockets", "closes", "undequeued", "events", "console", "exhausted",
	"disconnects",
}

func TestPrograms(t *testing.T) {
	for _, p := range programs {
		t.Run(p, func(t *testing.T) {
			program := compile(t, "gcc", "programs/"+p+".c", "-std=gnu11")
			onEach(t, func(t *testing.T, backend string) { run(t, backend, program) })
		})
	}
}

// The programs of the battery print what they print as Windows programs: .ci/wine compares that with
// the same files.
func TestBattery(t *testing.T) {
	files, err := filepath.Glob("programs/battery*.c")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".c")
		want, err := os.ReadFile("programs/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{"-O1", "-fsanitize=address,undefined"} {
			t.Run(name+" "+flag, func(t *testing.T) {
				program := compile(t, "gcc", file, "-std=gnu11", flag)
				onEach(t, func(t *testing.T, backend string) {
					if got := run(t, backend, program); got != string(want) {
						t.Errorf("%s prints\n%s\nand not\n%s", name, got, want)
					}
				})
			})
		}
	}
}

// duration is an argument of the programs with many threads: a second, or what the flag says.
func duration() string { return fmt.Sprint(max(*long, time.Second).Seconds()) }

// Sixty-four threads share a port: nothing is lost, there is one notification for each enable, and
// the removal is last.
func TestThreads(t *testing.T) {
	program := compile(t, "gcc", "programs/threads.c", "-std=gnu11", "-O1")
	onEach(t, func(t *testing.T, backend string) { t.Log(run(t, backend, program, "64", duration())) })
}

// The same with the program under AddressSanitizer, and with leaks found at its end.
func TestThreadsAddressSanitizer(t *testing.T) {
	program := compile(t, "gcc", "programs/threads.c", "-std=gnu11", "-O1", "-fsanitize=address")
	onEach(t, func(t *testing.T, backend string) { t.Log(run(t, backend, program, "64", duration())) })
}

// Programs and the library's C code under ThreadSanitizer. With these flags cgo tells it of what
// orders calls into Go.
func TestThreadSanitizer(t *testing.T) {
	const flag = "-fsanitize=thread"
	lib := filepath.Join(built(t), "tsan")
	t.Setenv("CGO_CFLAGS", "-g -O2 "+flag)
	t.Setenv("CGO_LDFLAGS", flag)
	command(t, "..", "make", "shared", "BUILD="+lib)
	for _, p := range []struct {
		name string
		args []string
	}{
		{"threads", []string{"16", duration()}}, {"waiters", nil}, {"overlapped", nil}, {"reuse", nil},
		{"edge", nil}, {"events", nil}, {"console", nil}, {"battery", nil}, {"battery_handles", nil}, {"battery_states", nil}, {"battery_netevents", nil}, {"battery_routines", nil}, {"exhausted", nil},
	} {
		t.Run(p.name, func(t *testing.T) {
			program := compileWith(t, lib, "gcc", "programs/"+p.name+".c", "-std=gnu11", "-O1", flag)
			onEach(t, func(t *testing.T, backend string) { run(t, backend, program, p.args...) })
		})
	}
}

// Overlapped calls, with the buffers and the OVERLAPPEDs under AddressSanitizer.
func TestOverlappedAddressSanitizer(t *testing.T) {
	program := compile(t, "gcc", "programs/overlapped.c", "-std=gnu11", "-O1", "-fsanitize=address,undefined")
	onEach(t, func(t *testing.T, backend string) { run(t, backend, program) })
}

// The Go side under the race detector. It needs memory at fixed addresses, which a shared library
// does not leave free, so the programs are linked with the archive, without position independence.
func TestRaceDetector(t *testing.T) {
	archive := filepath.Join(built(t), "race.a")
	command(t, "..", "go", "build", "-race", "-buildmode=c-archive", "-o", archive, ".")
	for _, p := range []struct {
		name string
		args []string
	}{
		{"overlapped", nil}, {"reuse", nil}, {"undequeued", nil}, {"waiters", nil},
		{"edge", nil}, {"exhausted", nil}, {"disconnects", nil},
		{"threads", []string{"16", "1"}},
	} {
		t.Run(p.name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "program")
			command(t, "", "gcc", "-no-pie", "-I../include", "-I../include/windows", "programs/"+p.name+".c", "-o", program, archive,
				"-lpthread", "-lm")
			onEach(t, func(t *testing.T, backend string) { run(t, backend, program, p.args...) })
		})
	}
}

// A program loads the library when it runs, unloads it, and uses it again.
func TestLoadedAtRunTime(t *testing.T) {
	program := compile(t, "gcc", "programs/load.c", "-std=gnu11", "-Wl,--as-needed")
	onEach(t, func(t *testing.T, backend string) {
		run(t, backend, program, filepath.Join(built(t), "libsocknotify.so"))
	})
}

// The headers compile without a warning, in C11 and C++17, by gcc and clang.
func TestHeaders(t *testing.T) {
	for _, c := range []struct{ compiler, file, std string }{
		{"gcc", "headers.c", "c11"}, {"gcc", "headers.c", "gnu17"}, {"clang", "headers.c", "c11"},
		{"g++", "headers.cpp", "c++17"}, {"clang++", "headers.cpp", "c++17"},
	} {
		t.Run(c.compiler+" "+c.std, func(t *testing.T) {
			compile(t, c.compiler, "programs/"+c.file, "-std="+c.std, "-Wpedantic")
		})
	}
}

// A program compiles without a change, with the macro by which it knows Windows, in C and in C++.
// It prints what is expected, and its own functions have names of the system's.
func TestNames(t *testing.T) {
	for _, c := range []struct{ compiler, file, std string }{
		{"gcc", "names.c", "c11"}, {"clang", "names.c", "gnu17"}, {"g++", "names.cpp", "c++17"},
		{"clang++", "names.cpp", "c++20"},
	} {
		t.Run(c.compiler+" "+c.std, func(t *testing.T) {
			program := compile(t, c.compiler, "programs/"+c.file, "-std="+c.std, "-Wpedantic", "-D_WIN32")
			const want = "Error: text\nnames: all as expected\n"
			if got := run(t, "epoll", program); got != want {
				t.Errorf("the program prints %q, not %q", got, want)
			}
		})
	}
}

// What docs/c.md says to programs that keep pointers in 32 bits.
func TestLowMemory(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the addresses are those of amd64")
	}
	program := compile(t, "gcc", "programs/low.c", "-std=gnu11", "-no-pie")
	for _, c := range []struct{ env, want string }{
		{"", "main: small 1, large 0\nthread: small 0, large 0\n"},
		{"MALLOC_ARENA_MAX=1", "main: small 1, large 0\nthread: small 1, large 0\n"},
		{"MALLOC_ARENA_MAX=1 MALLOC_MMAP_MAX_=0", "main: small 1, large 1\nthread: small 1, large 1\n"},
	} {
		t.Run(c.env, func(t *testing.T) {
			for _, set := range strings.Fields(c.env) {
				name, value, _ := strings.Cut(set, "=")
				t.Setenv(name, value)
			}
			if got := run(t, "epoll", program); got != c.want {
				t.Errorf("the program prints\n%s\nand not\n%s", got, c.want)
			}
		})
	}
}

// A program with msvc.h uses the headers of C++ for files, if they come first.
func TestFiles(t *testing.T) {
	need(t, "g++")
	program := compile(t, "g++", "programs/files.cpp", "-std=c++17", "-include", "filesystem", "-include", "fstream", "-include", "msvc.h")
	run(t, "epoll", program)
}

// The types have the sizes, and the constants the values, of mingw-w64's headers, where those have
// them.
func TestMingw(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the headers are compiled for amd64")
	}
	need(t, "clang")
	const headers = "/usr/share/mingw-w64/include"
	if _, err := os.Stat(headers); err != nil {
		t.Skip(err)
	}
	// The same file, with constants as this library has them, is compiled with either set of
	// headers.
	command(t, "", "clang", "-fsyntax-only", "-Wall", "-Werror", "--target=x86_64-w64-mingw32", "-isystem", headers, "programs/layout.c")
	command(t, "", "clang", "-fsyntax-only", "-Wall", "-Werror", "-I../include", "-I../include/windows", "programs/layout.c")
}

// The benchmarks in c/bench run.
func TestBenchmarks(t *testing.T) {
	calls := compile(t, "gcc", "../bench/calls.c", "-std=gnu11", "-O2")
	echo := compile(t, "gcc", "../bench/echo.c", "-std=gnu11", "-O2")
	onEach(t, func(t *testing.T, backend string) {
		t.Log(run(t, backend, calls, "0.01"))
		for _, mode := range []string{"epoll", "level", "oneshot"} {
			t.Log(run(t, backend, echo, mode, "2", "0.2"))
		}
	})
}

// socknotify-links makes links for headers in another case, and files for paths with backslashes.
func TestLinks(t *testing.T) {
	lib := built(t)
	need(t, "bash")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.c":      "#include \"SUB\\Foo.H\"\r\n#include \"stdafx.h\"\n#include <WinSOCK2.H>\nint main(void) { return INVALID_SOCKET == foo ? bar : bar + 1; }\n",
		"StdAfx.h":    "\n",
		"Sub/foo.h":   "#include \"..\\sub\\bar.h\"\n#define foo 5\n",
		"Sub/Bar.h":   "#include \"../stdafx.h\"\nenum { bar = -1 };\n",
		"Sub/Other.h": "#include \"nowhere.h\"\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	headers, err := filepath.Abs("../include/windows")
	if err != nil {
		t.Fatal(err)
	}
	command(t, "", "../socknotify-links", dir, headers)
	program := compileWith(t, lib, "gcc", filepath.Join(dir, "main.c"), "-I", dir)
	run(t, "epoll", program)
	before := command(t, dir, "ls", "-lR")
	command(t, "", "../socknotify-links", dir, headers)
	if after := command(t, dir, "ls", "-lR"); after != before {
		t.Errorf("a second run changes\n%s\nto\n%s", before, after)
	}
}
