package main

import (
	"fmt"
	"runtime"
	godebug "runtime/debug"

	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
)

const modulePath = "github.com/socknotify/socknotify"

// facts is the output of info.
type facts struct {
	Backend  string    `json:"backend"` // of ports made without an option; empty where there is none
	Backends []backend `json:"backends"`
	System   struct {
		OS     string `json:"os"`
		Arch   string `json:"arch"`
		Kernel string `json:"kernel,omitempty"`
		CPUs   int    `json:"cpus"`
	} `json:"system"`
	Limits struct {
		OpenFiles    uint64 `json:"open_files,omitempty"`     // the limit
		OpenFilesMax uint64 `json:"open_files_max,omitempty"` // the limit of the limit
	} `json:"limits"`
	Versions struct {
		Go     string `json:"go"`
		Module string `json:"module"`
	} `json:"versions"`
}

type backend struct {
	Name  string `json:"name"`
	Edges bool   `json:"edges"` // in the kernel
	Error string `json:"error,omitempty"`
}

func infoCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "info",
		Short:   "Print backends, limits and versions",
		Example: "  socknotify info\n  socknotify info --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := find()
			if err != nil {
				return err
			}
			return print(cmd.OutOrStdout(), asJSON, f, f.text)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// find opens a port on each backend and records whether it works and what it offers.
func find() (*facts, error) {
	f := &facts{Backends: []backend{}}
	if len(socknotify.Backends()) > 0 {
		name, err := resolve("")
		if err != nil {
			return nil, err
		}
		f.Backend = name
	}
	for _, name := range socknotify.Backends() {
		b := backend{Name: name}
		if p, err := socknotify.New[int](socknotify.WithBackend(name)); err != nil {
			b.Error = err.Error()
		} else {
			b.Edges = debug.TakeSnapshot(p, 0, 0).KernelEdges
			p.Close()
		}
		f.Backends = append(f.Backends, b)
	}
	f.System.OS, f.System.Arch, f.System.CPUs = runtime.GOOS, runtime.GOARCH, runtime.NumCPU()
	f.System.Kernel = kernelVersion()
	f.Limits.OpenFiles, f.Limits.OpenFilesMax = openFiles()
	f.Versions.Go, f.Versions.Module = runtime.Version(), moduleVersion()
	return f, nil
}

// version is set by the linker for the binaries of a release (.goreleaser.yaml), which are built in
// the workspace.
var version string

func moduleVersion() string {
	if version != "" {
		return version
	}
	info, ok := godebug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if info.Main.Path == modulePath && info.Main.Version != "" {
		return info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == modulePath {
			return m.Version
		}
	}
	return "(devel)"
}

func (f *facts) text() string {
	rows := [][]string{}
	add := func(name, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
	}
	if f.Backend == "" {
		add("backend", "none for this system yet")
	} else {
		add("backend", "%s", f.Backend)
	}
	for _, b := range f.Backends {
		switch {
		case b.Error != "":
			add("  "+b.Name, "%s", b.Error)
		case b.Edges:
			add("  "+b.Name, "edges in the kernel")
		default:
			add("  "+b.Name, "no edges in the kernel: enable with Drained after draining")
		}
	}
	add("system", "%s/%s, %d CPUs", f.System.OS, f.System.Arch, f.System.CPUs)
	if f.System.Kernel != "" {
		add("kernel", "%s", f.System.Kernel)
	}
	if f.Limits.OpenFilesMax > 0 {
		add("open files", "%d (at most %d)", f.Limits.OpenFiles, f.Limits.OpenFilesMax)
	}
	add("go", "%s", f.Versions.Go)
	add("module", "%s %s", modulePath, f.Versions.Module)
	return align(rows)
}
