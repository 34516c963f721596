package conformance

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestScenariosInProcess(t *testing.T) {
	t.Parallel()
	for _, s := range Scenarios() {
		t.Run(s.ID, func(t *testing.T) {
			t.Parallel()
			if r := Run(t.Context(), InProcess(), s); len(r.Breaches) > 0 {
				t.Errorf("%s:\n  %s", s.Title, strings.Join(r.Breaches[:min(len(r.Breaches), 10)], "\n  "))
			}
		})
	}
}

func TestScenariosAreDescribed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range Scenarios() {
		if s.ID == "" || s.Title == "" || s.Why == "" || s.Level == "" || seen[s.ID] {
			t.Errorf("scenario %+v", s.ID)
		}
		seen[s.ID] = true
	}
	if len(seen) < 15 {
		t.Errorf("%d scenarios", len(seen))
	}
	if _, err := Select([]string{"nope"}); err == nil {
		t.Error("an unknown id was taken")
	}
}
