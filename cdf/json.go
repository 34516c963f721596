package cdf

import (
	"fmt"

	"github.com/deltabus/deltabus-local/deltalog"
)

// AppendRowJSON appends row i of b to dst as deltalog.AppendRowJSON does, with _change_type, _commit_version and _commit_timestamp behind the
// table's columns.
func (b Batch) AppendRowJSON(dst []byte, i int) ([]byte, error) {
	dst, err := deltalog.AppendRowJSON(dst, b.Rows, i)
	if err != nil {
		return dst, err
	}
	dst = dst[:len(dst)-1] // the closing brace
	if b.Rows.NumCols() > 0 {
		dst = append(dst, ',')
	}
	return fmt.Appendf(dst, `"_change_type":%q,"_commit_version":%d,"_commit_timestamp":%q}`,
		b.ChangeType(i), b.Version, b.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z")), nil
}
