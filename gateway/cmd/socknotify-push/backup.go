package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/socknotify/socknotify/gateway"
)

// backup writes a backup to a file, and returns the exit status.
func backup(ctx context.Context, args []string, stderr io.Writer) int {
	f := flag.NewFlagSet("socknotify-push backup", flag.ContinueOnError)
	f.SetOutput(stderr)
	store := f.String("store", "push-data", "folder of a single node, which must be stopped")
	var elsewhere natsOptions
	elsewhere.flags(f, "URL of a running NATS with the stream, instead of a folder")
	final := f.Bool("final", false,
		"close the stream first: it takes no event any more, and is to be moved")
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil && f.NArg() != 1 {
		err = errors.New("want the name of one file")
	}
	err = cmp.Or(err, elsewhere.check())
	if err != nil {
		fmt.Fprintf(stderr, "socknotify-push backup: %v\n", err)
		return 2
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	if err := backupTo(ctx, f.Arg(0), *store, &elsewhere, *final, log); err != nil {
		fmt.Fprintf(stderr, "socknotify-push backup: %v\n", err)
		return 1
	}
	return 0
}

// backupTo writes a backup to a new file. If it fails, there is no file.
func backupTo(ctx context.Context, file, store string, elsewhere *natsOptions, final bool, log *slog.Logger) (
	err error) {
	conn, end, err := reach(store, elsewhere, log)
	if err != nil {
		return err
	}
	defer end()
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if final {
		err = gateway.CloseStream(ctx, conn, "")
	}
	if err == nil {
		err = gateway.Backup(ctx, conn, "", out)
	}
	if err == nil {
		err = out.Sync()
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err != nil {
		os.Remove(file)
	}
	return err
}

// reach connects to the streams of a folder, or to a NATS that runs elsewhere.
func reach(store string, elsewhere *natsOptions, log *slog.Logger) (conn *nats.Conn, end func(), err error) {
	if elsewhere.url != "" {
		if conn, err = elsewhere.connect(); err != nil {
			return nil, nil, err
		}
		return conn, conn.Close, nil
	}
	if _, err := os.Stat(store); err != nil {
		return nil, nil, fmt.Errorf("--store: %w", err)
	}
	node, err := gateway.Start(gateway.NodeConfig{Name: "backup", Store: store, Logger: log})
	if err != nil {
		return nil, nil, err
	}
	return node.Conn, node.Close, nil
}
