package deltalog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestClassError prints as Databricks does and hides nothing of what it is about.
func TestClassError(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	err := fmt.Errorf("open: %w", NewClassError("DELTA_VERSIONS_NOT_CONTIGUOUS", ErrCorrupt, "version %d: %w", 7, cause))
	if got, want := err.Error(), "open: [DELTA_VERSIONS_NOT_CONTIGUOUS] corrupt table: version 7: cause SQLSTATE: KD00C"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	var class *ClassError
	if !errors.Is(err, ErrCorrupt) || !errors.Is(err, cause) || !errors.As(err, &class) || class.Class != "DELTA_VERSIONS_NOT_CONTIGUOUS" || class.SQLState() != "KD00C" {
		t.Errorf("%v: %+v", err, class)
	}
	if got := NewClassError("DELTA_TIMESTAMP_INVALID", nil, "100%% %s", "x").Error(); got != "[DELTA_TIMESTAMP_INVALID] 100% x SQLSTATE: 42816" {
		t.Error(got)
	}
}

// TestEveryClassHasAnSQLState: each class that the code of the log and of the feed names.
func TestEveryClassHasAnSQLState(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{".", "../cdf"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") || strings.HasSuffix(f, "errorclass.go") {
				continue
			}
			source, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`"(DELTA_[A-Z_]+)"`).FindAllStringSubmatch(string(source), -1) {
				if sqlStates[m[1]] == "" {
					t.Errorf("%s: %s has no SQLSTATE: add it to errorclass.go", f, m[1])
				}
			}
		}
	}
}
