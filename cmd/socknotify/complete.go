package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/debugdata"
)

// complete registers shell completion for the flags of a command and of its subcommands: the values of flags with a
// fixed set, the ports of a running page, and files for certificates.
func complete(cmd *cobra.Command) {
	for flag, offer := range map[string]cobra.CompletionFunc{
		"backend": cobra.FixedCompletions(socknotify.Backends(), cobra.ShellCompDirectiveNoFileComp),
		"kind":    cobra.FixedCompletions(debugdata.TraceKinds, cobra.ShellCompDirectiveNoFileComp),
		"port":    portNames,
		"cert":    files,
		"key":     files,
	} {
		if cmd.LocalFlags().Lookup(flag) != nil {
			// It fails for a flag that a parent command has registered before.
			_ = cmd.RegisterFlagCompletionFunc(flag, offer)
		}
	}
	for _, c := range cmd.Commands() {
		complete(c)
	}
}

func files(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// portNames returns the ports of the page that is the command's argument, or nothing if it does not answer.
func portNames(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const nothing = cobra.ShellCompDirectiveNoFileComp
	if len(args) != 1 {
		return nil, nothing
	}
	c, err := newDebugClient(args[0])
	if err != nil {
		return nil, nothing
	}
	defer c.close()
	var ports debugdata.Ports
	if err := c.get(cmd.Context(), "ports", nil, &ports); err != nil {
		return nil, nothing
	}
	var names []cobra.Completion
	for _, p := range ports.Ports {
		names = append(names, cobra.CompletionWithDesc(printable(p.Name), printable(p.Backend)))
	}
	slices.Sort(names)
	return names, nothing
}
