package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"github.com/socknotify/socknotify/gateway"
)

// reshard changes the number of shards, and returns the exit status.
func reshard(ctx context.Context, args []string, stderr io.Writer) int {
	f := flag.NewFlagSet("socknotify-push reshard", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr, "Usage of socknotify-push reshard: the flags, and the new number of shards.\n"+
			"Nodes that run end, and are started again with that number in --shards, or without it.")
		f.PrintDefaults()
	}
	store := f.String("store", "push-data", "folder of a single node, which must be stopped")
	var elsewhere natsOptions
	elsewhere.flags(f, "URL of a running NATS with the streams, such as a member's --nats-addr, instead of a folder")
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	shards := 0
	if err == nil {
		if shards, err = strconv.Atoi(f.Arg(0)); f.NArg() != 1 || err != nil || shards < 1 || shards > gateway.MaxShards {
			err = fmt.Errorf("want one number of shards, 1 to %d", gateway.MaxShards)
		}
	}
	if err = cmp.Or(err, elsewhere.check()); err != nil {
		fmt.Fprintf(stderr, "socknotify-push reshard: %v\n", err)
		return 2
	}
	conn, end, err := reach(*store, &elsewhere, slog.New(slog.NewTextHandler(stderr, nil)))
	if err == nil {
		defer end()
		err = gateway.Reshard(ctx, conn, "", shards)
	}
	if err != nil {
		fmt.Fprintf(stderr, "socknotify-push reshard: %v\n", err)
		return 1
	}
	return 0
}
