package server

import "crypto/tls"

// withTLS returns a config for connections with TLS.
func (c config) withTLS(certFile, keyFile string) config {
	c.tls, c.err = certified(c.opts.TLSConfig, certFile, keyFile)
	return c
}

// certified returns a configuration, or a copy with the certificate of the files. The configuration
// itself is used if it can be, so that sessions of one listener can be resumed on another.
func certified(config *tls.Config, certFile, keyFile string) (*tls.Config, error) {
	if certFile == "" && keyFile == "" {
		if config == nil || len(config.Certificates) == 0 && config.GetCertificate == nil &&
			config.GetConfigForClient == nil {
			return nil, errNoCertificate
		}
		return config, nil
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	config = config.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	config.Certificates = []tls.Certificate{cert}
	return config, nil
}
