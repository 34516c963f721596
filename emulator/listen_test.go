package emulator

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func dialTCP(t *testing.T, url string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return c
}

// Connections that say nothing, or a little, hold up nobody.
func TestSlowConnectionsBlockNobody(t *testing.T) {
	t.Parallel()
	e := Run(t)
	if _, err := e.CreateTable(t.Context(), "main.default.t", tableSpec(t, "id BIGINT")); err != nil {
		t.Fatal(err)
	}
	for _, start := range []string{"", "P", "PRI * HT", "POST /oidc", "GET /livez HTTP/1.1\r\nHost:"} {
		for range 20 {
			if _, err := dialTCP(t, e.URL()).Write([]byte(start)); err != nil {
				t.Fatal(err)
			}
		}
	}
	resp, err := client(t, &http.Transport{}).Get(e.URL() + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != 200 {
		t.Errorf("%s, %v", resp.Status, err)
	}
	s := openStream(t, connect(t, strings.TrimPrefix(e.URL(), "http://"), grpc.WithTransportCredentials(insecure.NewCredentials())), "main.default.t")
	s.acknowledged(0, `{"id":1}`)
	s.end()
}

// A request may come byte by byte.
func TestSniffingNeedsNoWholePacket(t *testing.T) {
	t.Parallel()
	e := Run(t)
	c := dialTCP(t, e.URL())
	for _, b := range []byte("POST /nowhere HTTP/1.0\r\nContent-Length: 0\r\n\r\n") {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(answer), "ENDPOINT_NOT_FOUND") {
		t.Errorf("%s, %v", answer, err)
	}
}

// Who speaks TLS to the plain port is told in the log what to change, and cut off.
func TestTLSOnThePlainPort(t *testing.T) {
	t.Parallel()
	log, written := newLog()
	e := Run(t, WithLogger(log))
	_, err := client(t, &http.Transport{}).Get(strings.Replace(e.URL(), "http:", "https:", 1))
	if err == nil {
		t.Fatal("it answers")
	}
	written.waitFor(t, "give it http://")
}

// The clock is synctest's: half a minute passes at once.
func TestSilenceEnds(t *testing.T) {
	t.Parallel()
	for _, start := range []string{"", "P", "PRI * HTTP/2."} {
		synctest.Test(t, func(t *testing.T) {
			s, err := listenPlain("", slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			c, err := s.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if start != "" {
				if _, err := c.Write([]byte(start)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("after %q: %v", start, err)
			}
			if took := time.Since(began); took != sniffTimeout {
				t.Errorf("after %q it ends after %s", start, took)
			}
			if err := errors.Join(c.Close(), s.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		"0.0.0.0:0": "http://127.0.0.1:", ":0": "http://127.0.0.1:", "127.0.0.1:0": "http://127.0.0.1:", "localhost:0": "http://127.0.0.1:",
	} {
		e := Run(t, WithListen(listen))
		if !strings.HasPrefix(e.URL(), want) || strings.HasSuffix(e.URL(), ":0") {
			t.Errorf("%s is reached at %s", listen, e.URL())
		}
		resp, err := client(t, &http.Transport{}).Get(e.URL() + "/livez")
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}
