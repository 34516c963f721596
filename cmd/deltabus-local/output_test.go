package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
)

// An array of rows is JSON, also one that an error cut short; an error without rows prints nothing.
func TestRowsAreJSONAlsoAfterAnError(t *testing.T) {
	t.Parallel()
	for _, output := range []string{"json", "jsonl"} {
		for n := range 3 {
			for _, err := range []error{nil, errors.New("failed")} {
				var out bytes.Buffer
				rows := (&app{out: &out, output: output}).jsonRows()
				for range n {
					if err := rows.add([]byte(`{"a":1}`)); err != nil {
						t.Fatal(err)
					}
				}
				if got := rows.end(err); got != err {
					t.Errorf("%s of %d: %v became %v", output, n, err, got)
				}
				var list []any
				switch {
				case output == "jsonl", err != nil && n == 0:
					if want := 8 * n; out.Len() != want {
						t.Errorf("%s of %d, %v: %q", output, n, err, out.String())
					}
				case json.Unmarshal(out.Bytes(), &list) != nil || len(list) != n:
					t.Errorf("%s of %d, %v: %q", output, n, err, out.String())
				}
			}
		}
	}
}
