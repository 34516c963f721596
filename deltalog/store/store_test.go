package store

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newLocal(t *testing.T, dir string, noSync bool) Store {
	t.Helper()
	s, err := NewLocal(dir, noSync)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestListedTimes: local and in memory a listing gives the times that were set, too.
func TestListedTimes(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_600_000_000_999)
	for _, s := range []Store{newLocal(t, t.TempDir(), true), NewMemory()} {
		put(t, s, "x", nil, PutOptions{ModTime: at})
		for info, err := range s.List(t.Context(), "", "") {
			if err != nil || info.ModTime.UnixMilli() != at.UnixMilli() {
				t.Errorf("%s: %v, %v", s.URL(""), info.ModTime, err)
			}
		}
	}
}

// TestAddressOfLocal: a URL that other programs understand.
func TestAddressOfLocal(t *testing.T) {
	t.Parallel()
	if u := newLocal(t, t.TempDir(), true).URL("t/a b"); !strings.HasPrefix(u, "file:///") || !strings.HasSuffix(u, "/t/a%20b") {
		t.Errorf("URL %s", u)
	}
}

func put(t *testing.T, s Store, name string, data []byte, opts PutOptions) {
	t.Helper()
	if err := s.Put(t.Context(), name, data, opts); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, s Store, name string) string {
	t.Helper()
	data, err := s.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func list(t *testing.T, s Store, prefix, after string) string {
	t.Helper()
	var names []string
	for info, err := range s.List(t.Context(), prefix, after) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	return strings.Join(names, " ")
}
