package zerobusfake

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

// TestTextsAreMeasured: VARCHAR(n) and CHAR(n) hold for each record, in both encodings; what came before is acknowledged, and a batch is refused
// whole.
func TestTextsAreMeasured(t *testing.T) {
	t.Parallel()
	ddl := []string{"v VARCHAR(3)", "c CHAR(2)", "a ARRAY<VARCHAR(1)>", "s STRUCT<x: VARCHAR(1)>", "m MAP<VARCHAR(1),STRING>"}
	const e = " of the batch). Error Code: 4044, Error State: 3."
	for record, want := range map[string]string{
		`{"v":"abcd"}`:                 "string of 4 characters is too long for varchar(3) field 'v'",
		`{"v":"äöüß"}`:                 "string of 4 characters is too long for varchar(3) field 'v'",
		`{"c":"a  "}`:                  "string of 3 characters is too long for char(2) field 'c'",
		`{"a":["a","b","cd"]}`:         "string of 2 characters is too long for varchar(1) field 'element'",
		`{"s":{"x":"ab"}}`:             "string of 2 characters is too long for varchar(1) field 'x'",
		`{"m":{"a":"long","bc":"d"}}`:  "string of 2 characters is too long for varchar(1) field 'key'",
		`{"v":"\ud83d\ude00\u0061bc"}`: "string of 4 characters is too long for varchar(3) field 'v'",
	} {
		f := newFixture(t, store.NewMemory(), ddl...)
		c := f.json()
		good := `{"v":"äöü","c":"","a":["é",null],"s":{"x":"ß"},"m":{"a":"long"}}`
		c.send(jsonBatch(0, good, `{}`, good))
		c.send(jsonBatch(1, good, record, good))
		acked, err := c.drain()
		if got := status.Convert(err); acked != 0 || got.Code() != codes.InvalidArgument || got.Message() != "Record decoder/encoder error: "+want+" (record 1"+e {
			t.Errorf("%s: acknowledged %d, %v", record, acked, err)
		}
		again := f.json() // what was cut off is not measured again
		again.send(jsonBatch(0, good, good))
		again.until(0)
		if rows := f.rows(); len(rows) != 5 || slices.ContainsFunc(rows, func(r string) bool { return r == record }) {
			t.Errorf("%s: rows %v", record, rows)
		}
	}
	f := newFixture(t, store.NewMemory(), "v VARCHAR(3)")
	c := f.open(t.Context())
	c.send(createRequest("main.default.t", zerobuspb.RecordType_PROTO.Enum(), descriptor(t, field("v", 1, stringType))))
	c.created()
	for i, v := range []string{"abc", "abcd"} {
		c.send(protoRecord(int64(i), protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), v)))
	}
	acked, err := c.drain()
	if got := status.Convert(err).Message(); acked != 0 || got != "Record decoder/encoder error: string of 4 characters is too long for varchar(3) field 'v'. Error Code: 4044, Error State: 3." {
		t.Errorf("protobuf: acknowledged %d, %v", acked, err)
	}
}
