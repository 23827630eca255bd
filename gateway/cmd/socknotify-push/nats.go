package main

import (
	"errors"
	"flag"
	"fmt"

	"github.com/nats-io/nats.go"
)

// natsOptions are the flags about a NATS that runs elsewhere. Its client reads the files at each
// connection.
type natsOptions struct{ url, ca, cert, key, creds string }

// flags defines the flags.
func (o *natsOptions) flags(f *flag.FlagSet, usage string) {
	f.StringVar(&o.url, "nats", "", usage)
	f.StringVar(&o.ca, "nats-ca", "", "file with the certificates of those who sign those of --nats (default the system's)")
	f.StringVar(&o.cert, "nats-cert", "", "file with a certificate for --nats")
	f.StringVar(&o.key, "nats-key", "", "file with its key")
	f.StringVar(&o.creds, "nats-creds", "", "file with credentials for --nats, a JWT and the seed of an nkey")
}

// check reports which flags do not go together.
func (o *natsOptions) check() error {
	switch {
	case o.url == "" && *o != natsOptions{}:
		return errors.New("--nats-ca, --nats-cert, --nats-key and --nats-creds need --nats")
	case (o.cert == "") != (o.key == ""):
		return errors.New("--nats-cert and --nats-key go together")
	}
	return nil
}

// connect connects.
func (o *natsOptions) connect(more ...nats.Option) (*nats.Conn, error) {
	if o.ca != "" {
		more = append(more, nats.RootCAs(o.ca))
	}
	if o.cert != "" {
		more = append(more, nats.ClientCert(o.cert, o.key))
	}
	if o.creds != "" {
		more = append(more, nats.UserCredentials(o.creds))
	}
	conn, err := nats.Connect(o.url, more...)
	if err != nil {
		return nil, fmt.Errorf("--nats: %w", err)
	}
	return conn, nil
}
