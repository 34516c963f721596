package deltalog

import "github.com/apache/arrow-go/v18/arrow"

// AppendRowJSON appends row i of rec to dst as one canonical JSON object: columns in order, nulls included, ISO-8601
// times (Z for timestamp, none for timestamp_ntz, microseconds only where not zero), base64 binary, decimals as exact
// numbers in strings, int64 as numbers, NaN and infinities as strings.
func AppendRowJSON(dst []byte, rec arrow.RecordBatch, i int) ([]byte, error) { panic("pending") }
