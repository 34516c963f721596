package deltabus

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Reserved headers: the bus's own, which publishers refuse from users.
const (
	reservedPrefix     = "deltabus-"
	HeaderReplayTo     = "deltabus-replay-to"
	HeaderDeadLetterID = "deltabus-dead-letter-id"
	HeaderReplayNumber = "deltabus-replay-number"
)

// isText reports whether a payload goes into the column payload: text or JSON by its content type (or without one), and valid
// UTF-8, so that it is kept byte for byte.
func isText(contentType string, payload []byte) bool {
	if !utf8.Valid(payload) {
		return false
	}
	mime, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	mime = strings.TrimSpace(mime)
	return mime == "" || strings.HasPrefix(mime, "text/") || mime == "application/json" || strings.HasSuffix(mime, "+json")
}

// appendMessage appends one message to the builders of the message columns, which begin at builder first.
func appendMessage(b *array.RecordBuilder, first int, m *Message, producerID string, seq int64, at time.Time) {
	text := func(i int, s string) {
		f := b.Field(first + i).(*array.StringBuilder)
		if s == "" {
			f.AppendNull()
		} else {
			f.Append(s)
		}
	}
	must := func(i int, s string) { b.Field(first + i).(*array.StringBuilder).Append(s) }
	must(0, m.ID)
	must(1, m.Topic)
	text(2, m.Key)
	must(3, m.Source)
	text(4, m.Type)
	text(5, m.Subject)
	text(6, m.ContentType)
	if isText(m.ContentType, m.Payload) {
		b.Field(first + 7).(*array.StringBuilder).BinaryBuilder.Append(m.Payload)
		b.Field(first + 8).AppendNull()
	} else {
		b.Field(first + 7).AppendNull()
		b.Field(first + 8).(*array.BinaryBuilder).Append(m.Payload)
	}
	headers := b.Field(first + 9).(*array.MapBuilder)
	if len(m.Headers) == 0 {
		headers.AppendNull()
	} else {
		headers.Append(true)
		for _, k := range slices.Sorted(maps.Keys(m.Headers)) {
			headers.KeyBuilder().(*array.StringBuilder).Append(k)
			headers.ItemBuilder().(*array.StringBuilder).Append(m.Headers[k])
		}
	}
	text(10, m.CorrelationID)
	must(11, producerID)
	b.Field(first + 12).(*array.Int64Builder).Append(seq)
	b.Field(first + 13).(*array.TimestampBuilder).Append(arrow.Timestamp(at.UnixMicro()))
}

// messageRow reads row i of the message columns, which begin at column first; what it returns shares nothing with rec.
func messageRow(rec arrow.RecordBatch, first, i int) (Event, error) {
	text := func(c int) string {
		arr, ok := rec.Column(first + c).(*array.String)
		if !ok || arr.IsNull(i) {
			return ""
		}
		return strings.Clone(arr.Value(i))
	}
	var e Event
	e.ID, e.Topic, e.Key, e.Source, e.Type = text(0), text(1), text(2), text(3), text(4)
	e.Subject, e.ContentType = text(5), text(6)
	if payload := rec.Column(first + 7); !payload.IsNull(i) {
		e.Payload = []byte(text(7))
	} else if raw, ok := rec.Column(first + 8).(*array.Binary); ok && !raw.IsNull(i) {
		e.Payload = slices.Clone(raw.Value(i))
	}
	headers, ok := rec.Column(first + 9).(*array.Map)
	if !ok {
		return e, fmt.Errorf("column headers is %s", rec.Column(first+9).DataType())
	}
	if !headers.IsNull(i) {
		from, to := headers.ValueOffsets(i)
		keys, values := headers.Keys().(*array.String), headers.Items().(*array.String)
		e.Headers = make(map[string]string, to-from)
		for j := int(from); j < int(to); j++ {
			e.Headers[strings.Clone(keys.Value(j))] = strings.Clone(values.Value(j))
		}
	}
	e.CorrelationID, e.ProducerID = text(10), text(11)
	e.ProducerSeq = rec.Column(first + 12).(*array.Int64).Value(i)
	e.PublishedAt = time.UnixMicro(int64(rec.Column(first + 13).(*array.Timestamp).Value(i))).UTC()
	e.DeadLetterID = e.Headers[HeaderDeadLetterID]
	e.Replay, _ = strconv.Atoi(e.Headers[HeaderReplayNumber])
	return e, nil
}

// messageNames are the names of the message columns, in order.
func messageNames() []string {
	names := make([]string, len(messageColumns))
	for i, c := range messageColumns {
		names[i], _, _ = strings.Cut(c, " ")
	}
	return names
}

// IsText reports whether the payload is kept in the column payload, as text, and not in payload_bytes.
func (m *Message) IsText() bool { return isText(m.ContentType, m.Payload) }
