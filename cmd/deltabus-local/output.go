package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// table collects the rows of a list, and prints them as the user wants: aligned columns, one JSON array, or one JSON object a
// line.
type table struct {
	a       *app
	header  []string
	lines   [][]string
	objects []any
}

func (a *app) table(header ...string) *table { return &table{a: a, header: header} }

// row adds a row: the object for JSON, the cells for the table.
func (t *table) row(object any, cells ...string) {
	t.objects = append(t.objects, object)
	t.lines = append(t.lines, cells)
}

func (t *table) flush() error {
	switch t.a.output {
	case "json":
		if t.objects == nil {
			t.objects = []any{}
		}
		return t.a.printJSON(t.objects, true)
	case "jsonl":
		for _, o := range t.objects {
			if err := t.a.printJSON(o, false); err != nil {
				return err
			}
		}
		return nil
	}
	var buf bytes.Buffer
	w := tabwriter.NewWriter(&buf, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(t.header, "\t"))
	for _, l := range t.lines {
		fmt.Fprintln(w, strings.Join(l, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	head, rest, _ := bytes.Cut(buf.Bytes(), []byte("\n"))
	_, err := fmt.Fprintf(t.a.out, "%s\n%s", t.a.bold(strings.TrimRight(string(head), " ")), trimLines(rest))
	return err
}

// trimLines drops blanks at the ends of lines.
func trimLines(b []byte) []byte {
	lines := bytes.Split(b, []byte("\n"))
	for i := range lines {
		lines[i] = bytes.TrimRight(lines[i], " ")
	}
	return bytes.Join(lines, []byte("\n"))
}

// printOne prints one thing: a JSON object, or its lines aligned.
func (a *app) printOne(object any, lines ...[2]string) error {
	switch a.output {
	case "json":
		return a.printJSON(object, true)
	case "jsonl":
		return a.printJSON(object, false)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%s\n", l[0], l[1])
	}
	return w.Flush()
}

func (a *app) printJSON(v any, indent bool) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

// jsonRows prints JSON objects that are made one by one: an array with -o json, else one a line.
type jsonRows struct {
	w     io.Writer
	array bool
	n     int
}

func (a *app) jsonRows() *jsonRows { return &jsonRows{w: a.out, array: a.output == "json"} }

func (r *jsonRows) add(object []byte) error {
	before, after := "", "\n"
	if r.array {
		after = ""
		if before = ",\n"; r.n == 0 {
			before = "[\n"
		}
	}
	r.n++
	_, err := fmt.Fprintf(r.w, "%s%s%s", before, object, after)
	return err
}

// addAll prints n objects, each as appendRow writes it.
func (r *jsonRows) addAll(n int64, appendRow func(dst []byte, i int) ([]byte, error)) error {
	var buf []byte
	for i := range int(n) {
		var err error
		if buf, err = appendRow(buf[:0], i); err != nil {
			return err
		}
		if err := r.add(buf); err != nil {
			return err
		}
	}
	return nil
}

// end ends the array, also one that err cut short: what was printed is JSON. It returns err, or else its own error.
func (r *jsonRows) end(err error) error {
	text := "\n]\n"
	switch {
	case !r.array, r.n == 0 && err != nil: // a failure without results prints none
		return err
	case r.n == 0:
		text = "[]\n"
	}
	if _, failed := io.WriteString(r.w, text); err == nil {
		err = failed
	}
	return err
}

// bold is s in bold, on a terminal that may have colours.
func (a *app) bold(s string) string {
	if !a.colour() {
		return s
	}
	return "\x1b[1m" + s + "\x1b[0m"
}

// colour reports whether the output is a terminal and NO_COLOR is not set.
func (a *app) colour() bool {
	if os.Getenv("NO_COLOR") != "" {
		return false
	}
	f, ok := a.out.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
