package deltabus_test

import (
	"testing"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/emulator"
)

// TestPublisherWithCredentials: client credentials get a token, and messages take the fast way, on the plain port and over
// TLS with the emulator's own CA.
func TestPublisherWithCredentials(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts []emulator.Option
		url  func(*emulator.Emulator) string
	}{
		{"plain", nil, (*emulator.Emulator).URL},
		{"tls", []emulator.Option{emulator.WithTLS("127.0.0.1:0")}, (*emulator.Emulator).TLSURL},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := emulator.Run(t, tc.opts...)
			if ca := e.CAFile(); ca != "" {
				t.Setenv("SSL_CERT_FILE", ca)
			}
			b, err := deltabus.Init(t.Context(), deltabus.Config{
				Workspace: e, Zerobus: &deltabus.ZerobusConfig{Endpoint: tc.url(e), ClientID: e.ClientID(), ClientSecret: e.ClientSecret()},
			})
			if err != nil {
				t.Fatal(err)
			}
			p, err := b.Publisher()
			if err != nil {
				t.Fatal(err)
			}
			receipts, err := p.Publish(t.Context(), deltabus.Message{Topic: "t", ID: "a", Payload: []byte{0xff}, Headers: map[string]string{"k": "v"}}, deltabus.Message{Topic: "t", ID: "b"})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range receipts {
				if r.Path != deltabus.PathZerobus {
					t.Errorf("%s went by %s", r.MessageID, r.Path)
				}
			}
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if rows := countRows(t, b); rows["a"] != 1 || rows["b"] != 1 {
				t.Errorf("rows %v", rows)
			}
		})
	}
}
