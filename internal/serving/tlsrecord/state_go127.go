//go:build go1.27

package tlsrecord

import "crypto/tls"

func localCertificate(s *tls.ConnectionState) *[][]byte { return &s.LocalCertificate }
