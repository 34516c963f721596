package interop

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// badCase is one stream of an SDK: good records, then one that is refused, and what the SDK then raises.
type badCase struct {
	Name    string `json:"-"`
	Table   string `json:"table"`
	Message string `json:"message,omitempty"` // a class of badClasses: records are base64 of bytes
	Records []any  `json:"records"`
	Want    string `json:"-"` // the server's message, or the SDK's own when it never asks the server
}

// badClasses are the messages of the protobuf cases; the first one fits the table.
const badClasses = `syntax = "proto2";
message Good { required int64 id = 1; optional string text = 2; optional int32 small = 3; }
message Extra { required int64 id = 1; optional string nobody = 2; }
message WrongType { required string id = 1; }
message NoID { optional string text = 2; }
`

// TestBadInput: what is wrong is refused with the service's text, what came before it on its stream is in the table, and the
// table's other streams go on.
func TestBadInput(t *testing.T) {
	badInput(t, func(args arguments) *worker {
		return startWorker(t, python(t), append([]string{source(t, "python", "send.py")}, args.words()...)...)
	}, "NonRetriableException")
}

// badInput has an SDK's program send each bad case; kinds are the SDK's names for the errors that it may then raise.
func badInput(t *testing.T, send func(arguments) *worker, kinds ...string) {
	t.Helper()
	s := serve(t)
	const table = "main.bad.events"
	dir := s.createTable(table, []string{"id BIGINT NOT NULL", "text STRING", "small TINYINT"}, nil, nil)

	var message []byte
	message = protowire.AppendTag(message, 1, protowire.VarintType)
	message = protowire.AppendVarint(message, 900)
	proto := func(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
	badText := protowire.AppendBytes(protowire.AppendTag(append([]byte{}, message...), 2, protowire.BytesType), []byte{0xff, 0xfe})
	tooBig := protowire.AppendVarint(protowire.AppendTag(append([]byte{}, message...), 3, protowire.VarintType), 300)
	truncated := append(append([]byte{}, message...), 0x12, 0x7f, 'x')

	cases := badCases(table, proto, badText, tooBig, truncated)

	// Before each refused record go two good ones, which have to be there afterwards.
	expected := map[int]bool{}
	next := 0
	for i := range cases {
		if cases[i].Table != table || len(cases[i].Records) == 0 {
			continue // refused before there is a stream
		}
		var good []any
		for range 2 {
			if cases[i].Message != "" {
				good = append(good, proto(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(next))))
			} else {
				good = append(good, fmt.Sprintf(`{"id":%d,"text":"good"}`, next))
			}
			expected[next] = true
			next++
		}
		cases[i].Records = append(good, cases[i].Records...)
	}

	temp := t.TempDir()
	if err := os.WriteFile(filepath.Join(temp, "bad.proto"), []byte(badClasses), 0o600); err != nil {
		t.Fatal(err)
	}
	set := filepath.Join(temp, "descriptors.pb")
	command(t, python(t), "-m", "grpc_tools.protoc", "-I", temp, "--python_out", temp, "--descriptor_set_out", set, filepath.Join(temp, "bad.proto"))
	input := filepath.Join(temp, "cases.json")
	b, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(input, b, 0o600); err != nil {
		t.Fatal(err)
	}

	// Another stream on the same table, all the while.
	const others = 300
	otherInput, otherRows := writeRows(t, []column{id, generatable[8]}, 10_000, 10_000+others)
	other := s.ingest(table, otherInput, arguments{"pause": 0.005})

	w := send(arguments{
		"url": s.HTTP, "client_id": s.ClientID, "client_secret": s.ClientSecret, "input": input,
		"pb2_dir": temp, "pb2": "bad_pb2", "descriptors": set,
	})
	lines := w.wait(2 * time.Minute)
	if len(lines) != len(cases) {
		t.Fatalf("%d answers for %d cases\n%s", len(lines), len(cases), w.errs.Bytes())
	}
	for i, c := range cases {
		var a answer
		if err := json.Unmarshal(lines[i], &a); err != nil {
			t.Fatal(err)
		}
		if got := serverMessage(a.Error); got != c.Want || !slices.Contains(kinds, a.Kind) {
			t.Errorf("%s: the SDK raised %s\n %s\nwant\n %s", c.Name, a.Kind, got, c.Want)
		}
	}
	sent(t, other, others)
	for i := range otherRows {
		expected[10_000+i] = true
	}
	for _, r := range ours(t, dir, -1) {
		var v struct{ ID int }
		if err := json.Unmarshal([]byte(r), &v); err != nil {
			t.Fatal(err)
		}
		if !expected[v.ID] {
			t.Errorf("a row that was refused, or is there twice: %s", r)
		}
		delete(expected, v.ID)
	}
	if len(expected) > 0 {
		t.Errorf("%d good rows are missing: %v", len(expected), expected)
	}
}

// The SDK wraps a server's message in one of these, as the call that meets the stream's end is a send or a flush.
var sdkWrappers = []*regexp.Regexp{
	regexp.MustCompile(`(?s)^Invalid argument: (.*)\.$`),
	regexp.MustCompile(`(?s)^Stream is closed: code: 'Client specified an invalid argument', message: "(.*)"$`),
	regexp.MustCompile(`(?s)^Failed to create stream: code: '(?:Client specified an invalid argument|Some requested entity was not found)', message: "(.*)"\.$`),
}

func serverMessage(s string) string {
	for _, w := range sdkWrappers {
		if m := w.FindStringSubmatch(s); m != nil {
			return strings.ReplaceAll(m[1], `\"`, `"`)
		}
	}
	return s
}

func badCases(table string, proto func([]byte) string, badText, tooBig, truncated []byte) []badCase {
	record := func(text string) string {
		return "Record decoder/encoder error: " + text + ". Error Code: 4044, Error State: 3."
	}
	nested := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	return []badCase{
		{Name: "unknown column", Table: table, Records: []any{`{"id":1,"nobody":2}`}, Want: record("unrecognized field name 'nobody' at line 1 column 9")},
		{Name: "missing NOT NULL", Table: table, Records: []any{`{"text":"a"}`}, Want: record("missing required field 'id'")},
		{Name: "null in NOT NULL", Table: table, Records: []any{`{"id":null}`}, Want: record("null for required field 'id' at line 1 column 7")},
		{Name: "wrong type", Table: table, Records: []any{`{"id":"2024-01-01"}`}, Want: record("invalid digit found in string at line 1 column 7")},
		{Name: "out of range", Table: table, Records: []any{`{"id":1,"small":128}`}, Want: record("number out of range for tinyint field 'small' at line 1 column 17")},
		{Name: "beyond 64 bits", Table: table, Records: []any{`{"id":9223372036854775808}`}, Want: record("invalid digit found in string at line 1 column 7")},
		{Name: "not an object", Table: table, Records: []any{`[1,2]`}, Want: record("expected a JSON object at line 1 column 1")},
		{Name: "empty", Table: table, Records: []any{``}, Want: record("expected a JSON object at line 1 column 1")},
		{Name: "broken JSON", Table: table, Records: []any{`{"id":1,`}, Want: record("expected a field name at line 1 column 9")},
		{Name: "lone surrogate", Table: table, Records: []any{`{"id":1,"text":"\ud800"}`}, Want: record("lone surrogate in a string at line 1 column 17")},
		{Name: "NaN", Table: table, Records: []any{`{"id":NaN}`}, Want: record("invalid digit found in string at line 1 column 7")},
		{Name: "deep nesting", Table: table, Records: []any{`{"id":1,"nested":` + nested + `}`}, Want: record("unrecognized field name 'nested' at line 1 column 9")},
		{Name: "11 MiB", Table: table, Records: []any{map[string]int{"size": 11 << 20}}, Want: "Ingest payload too large: 11534357 bytes exceeds the configured limit of 10420224 bytes"},
		{Name: "unknown table", Table: "main.bad.nowhere", Want: `Table "main.bad.nowhere" cannot be found.`},
		{Name: "unknown field in the descriptor", Table: table, Message: "Extra", Want: "Protobuf descriptor does not match the table: field 'nobody' is not in the table"},
		{Name: "wrong type in the descriptor", Table: table, Message: "WrongType", Want: "Protobuf descriptor does not match the table: field 'id' is string, which does not fit column type bigint"},
		{Name: "NOT NULL column not in the descriptor", Table: table, Message: "NoID", Want: "Protobuf descriptor does not match the table: required column 'id' has no field"},
		{Name: "protobuf out of range", Table: table, Message: "Good", Records: []any{proto(tooBig)}, Want: record("number out of range for tinyint field 'small'")},
		{Name: "protobuf bad UTF-8", Table: table, Message: "Good", Records: []any{proto(badText)}, Want: record("invalid UTF-8 in field 'text'")},
		{Name: "truncated protobuf", Table: table, Message: "Good", Records: []any{proto(truncated)}, Want: record("invalid protobuf: unexpected EOF")},
		{Name: "protobuf without a required field", Table: table, Message: "Good", Records: []any{proto(nil)}, Want: record("missing required field 'id'")},
		{Name: "garbage protobuf", Table: table, Message: "Good", Records: []any{proto([]byte("\xff\xff\xff garbage"))}, Want: record("invalid protobuf: cannot parse reserved wire type")},
		{Name: "protobuf groups without end", Table: table, Message: "Good", Records: []any{proto(bytes.Repeat([]byte{0x23}, 20_000))}, Want: record("protobuf groups are not supported")},
	}
}
