package store_test

import (
	"testing"

	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/deltalog/store/storetest"
)

func newLocal(t *testing.T, noSync bool) store.Store {
	t.Helper()
	s, err := store.NewLocal(t.TempDir(), noSync)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestConformance: every kind of store keeps what a Store promises.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) store.Store{
		"local":         func(t *testing.T) store.Store { return newLocal(t, false) },
		"local no sync": func(t *testing.T) store.Store { return newLocal(t, true) },
		"memory":        func(*testing.T) store.Store { return store.NewMemory() },
		"sub of local":  func(t *testing.T) store.Store { return store.Sub(newLocal(t, true), "a/b") },
		"sub of sub":    func(*testing.T) store.Store { return store.Sub(store.Sub(store.NewMemory(), "a"), "b") },
		"crashable":     func(*testing.T) store.Store { return store.NewCrashable() },
		"faults": func(*testing.T) store.Store {
			return store.WithFaults(store.NewMemory(), func(store.Op) store.Fault { return store.None })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, open)
		})
	}
}
