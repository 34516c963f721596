package deltalog

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// maxFooterBound is the longest least or greatest value of a column that a footer keeps, in bytes.
const maxFooterBound = 64

// trimFooter takes long bounds out of the footer at the end of file. parquet-go copies the least and greatest value of every column
// whole, so that one record in a file would be there three times. Readers do without: the log has bounds of its own.
func trimFooter(file *bytes.Buffer, meta *format.FileMetaData) error {
	if !trimBounds(meta) {
		return nil
	}
	const tail = 8 // the footer's length, and PAR1
	n := file.Len()
	if n < tail {
		return errors.New("parquet: the writer left no footer")
	}
	length := int(binary.LittleEndian.Uint32(file.Bytes()[n-tail:]))
	if length > n-tail {
		return errors.New("parquet: the writer left a footer longer than the file")
	}
	file.Truncate(n - tail - length)
	start := file.Len()
	if err := thrift.NewEncoder(new(thrift.CompactProtocol).NewWriter(file)).Encode(meta); err != nil {
		return err
	}
	var end [tail]byte
	binary.LittleEndian.PutUint32(end[:], uint32(file.Len()-start))
	copy(end[4:], "PAR1")
	file.Write(end[:])
	return nil
}

// trimBounds drops long bounds and reports whether there were any.
func trimBounds(meta *format.FileMetaData) bool {
	found := false
	for i := range meta.RowGroups {
		columns := meta.RowGroups[i].Columns
		for j := range columns {
			s := &columns[j].MetaData.Statistics
			if len(s.MinValue) > maxFooterBound || len(s.MaxValue) > maxFooterBound {
				s.MinValue, s.MaxValue = nil, nil
				found = true
			}
		}
	}
	return found
}
