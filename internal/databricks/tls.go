package databricks

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// SystemTLS trusts the system's roots, or only the PEM file that the environment variable SSL_CERT_FILE names: on every
// system, as the official SDKs do.
func SystemTLS() (*tls.Config, error) {
	file := os.Getenv("SSL_CERT_FILE")
	if file == "" {
		return &tls.Config{}, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read SSL_CERT_FILE: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read SSL_CERT_FILE: no certificate in %s", file)
	}
	return &tls.Config{RootCAs: pool}, nil
}
