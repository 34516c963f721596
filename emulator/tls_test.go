package emulator

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
)

func roots(t *testing.T, e *Emulator) *x509.CertPool {
	t.Helper()
	pem, err := os.ReadFile(e.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatalf("%s holds no certificate", e.CAFile())
	}
	return pool
}

// One TLS port serves HTTP/1.1, HTTP/2 and gRPC, as the client's ALPN says.
func TestTLS(t *testing.T) {
	t.Parallel()
	e := Run(t, WithTLS("127.0.0.1:0", "ws.emulator.local", "192.0.2.7"))
	if !strings.HasPrefix(e.TLSURL(), "https://127.0.0.1:") || e.Info().TLS != e.TLSURL() || e.Info().CA != e.CAFile() {
		t.Errorf("%+v", e.Info())
	}
	addr := strings.TrimPrefix(e.TLSURL(), "https://")
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "host.docker.internal", "ws.emulator.local", "192.0.2.7"} {
		c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots(t, e), ServerName: name})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots(t, e), ServerName: "elsewhere.test"}); err == nil {
		t.Errorf("the certificate is good for elsewhere: %v", c.Close())
	}
	for _, proto := range []string{"http/1.1", "h2"} {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots(t, e), NextProtos: []string{proto}}, ForceAttemptHTTP2: proto == "h2"}
		resp, err := client(t, tr).Get(e.TLSURL() + "/.well-known/databricks-config")
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 200 || resp.TLS.NegotiatedProtocol != proto || (resp.ProtoMajor == 2) != (proto == "h2") {
			t.Errorf("%s: %s, %q, %s", proto, resp.Status, resp.TLS.NegotiatedProtocol, resp.Proto)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := e.CreateTable(t.Context(), "main.default.t", tableSpec(t, "id BIGINT")); err != nil {
		t.Fatal(err)
	}
	s := openStream(t, connect(t, addr, grpc.WithTransportCredentials(caCredentials(t, e))), "main.default.t")
	s.acknowledged(0, `{"id":1}`)
	s.end()
}

// Clients go on trusting a data directory's authority after a restart; that of an emulator in memory goes with it.
func TestAuthorityIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var pems []string
	for range 2 {
		e, err := Start(t.Context(), WithDataDir(dir), WithTLS("127.0.0.1:0"))
		if err != nil {
			t.Fatal(err)
		}
		if e.CAFile() != filepath.Join(dir, "tls", "ca.pem") {
			t.Errorf("the authority is at %s", e.CAFile())
		}
		pem, err := os.ReadFile(e.CAFile())
		if err != nil {
			t.Fatal(err)
		}
		pems = append(pems, string(pem))
		if err := e.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if pems[0] != pems[1] {
		t.Error("the authority changed")
	}
	if info, err := os.Stat(filepath.Join(dir, "tls", "ca-key.pem")); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("the key's mode: %v, %v", info, err)
	}
	e, err := Start(t.Context(), WithTLS("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(e.CAFile()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", e.CAFile(), err)
	}
}

func TestAuthorityIsRenewed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "key.pem")
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ca, err := newCA(cert, key, made)
	if err != nil {
		t.Fatal(err)
	}
	for after, good := range map[time.Duration]bool{0: true, 4 * 365 * 24 * time.Hour: true, 5*365*24*time.Hour - 7*24*time.Hour: false} {
		if _, err := loadCA(cert, key, made.Add(after)); (err == nil) != good {
			t.Errorf("after %s: %v", after, err)
		}
	}
	if !ca.cert.IsCA || !ca.cert.BasicConstraintsValid {
		t.Error("it is no authority")
	}
	leaf, err := ca.leaf(made, nil)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(leaf.Certificate[0])
	if err != nil || parsed.IsCA {
		t.Errorf("leaf: %v, authority %v", err, parsed.IsCA)
	}
}
