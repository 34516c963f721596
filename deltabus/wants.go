package deltabus

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// wants reports whether this consumer is to handle e: by its filter, unless it is a replay, which is for the one it names.
func (c *Consumer) wants(e *Event) bool {
	return wanted(c.id, c.filter, e.Topic, e.Headers[HeaderReplayTo])
}

func wanted(consumer string, filter Filter, topic, replayTo string) bool {
	if replayTo != "" {
		return replayTo == consumer
	}
	return filter.Match(topic)
}

// wantsRow is wants for row i of the columns topic and headers, which are the first two of rec.
func (c *Consumer) wantsRow(rec arrow.RecordBatch, i int) bool {
	headers, replayTo := rec.Column(1).(*array.Map), ""
	if !headers.IsNull(i) {
		from, to := headers.ValueOffsets(i)
		keys, values := headers.Keys().(*array.String), headers.Items().(*array.String)
		for j := int(from); j < int(to); j++ {
			if keys.Value(j) == HeaderReplayTo {
				replayTo = values.Value(j)
			}
		}
	}
	return wanted(c.id, c.filter, rec.Column(0).(*array.String).Value(i), replayTo)
}
