package emulator

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// certificate makes a certificate for the TLS port, signed by the authority in DATA/tls, which is made at the first time, so
// that clients go on trusting it. In memory the authority lives in a temporary directory.
func (e *Emulator) certificate() (tls.Certificate, string, error) {
	fail := func(err error) (tls.Certificate, string, error) {
		return tls.Certificate{}, "", fmt.Errorf("tls certificate: %w", err)
	}
	dir := filepath.Join(e.info.DataDir, "tls")
	if e.info.DataDir == "" {
		var err error
		if e.caDir, err = os.MkdirTemp("", "deltabus-ca-"); err != nil {
			return fail(err)
		}
		dir = e.caDir
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	caFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca-key.pem")
	ca, err := loadCA(caFile, keyFile, time.Now())
	if err != nil {
		if ca, err = newCA(caFile, keyFile, time.Now()); err != nil {
			return fail(err)
		}
	}
	cert, err := ca.leaf(time.Now(), e.cfg.tlsNames)
	if err != nil {
		return fail(err)
	}
	return cert, caFile, nil
}

// authority is a small certificate authority.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// loadCA reads an authority that is good for another month.
func loadCA(caFile, keyFile string, now time.Time) (*authority, error) {
	pair, err := tls.LoadX509KeyPair(caFile, keyFile)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || now.AddDate(0, 1, 0).After(cert.NotAfter) {
		return nil, errors.New("authority is to be renewed")
	}
	return &authority{cert, key}, nil
}

func newCA(caFile, keyFile string, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "deltabus-local CA"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(5, 0, 0), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	// The key first: a certificate without its key is made anew.
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return nil, err
	}
	return &authority{cert, key}, nil
}

// leaf makes a server certificate for the names under which a laptop is reached, and those given.
func (a *authority) leaf(now time.Time, names []string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := serialNumber()
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "deltabus-local"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(0, 6, 0), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "host.docker.internal"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if !slices.Contains(template.DNSNames, n) {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}, nil
}

func serialNumber() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
}
