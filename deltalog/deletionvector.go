package deltalog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strings"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/google/uuid"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// RowSet is a set of rows of one data file, each by its position in the file from 0, across row groups. nil is the empty set. Immutable, and
// safe for concurrent use.
type RowSet struct{ bits *roaring64.Bitmap }

// Len is how many rows there are.
func (r *RowSet) Len() int64 {
	if r == nil {
		return 0
	}
	return int64(r.bits.GetCardinality())
}

// Contains reports whether row is one of them.
func (r *RowSet) Contains(row int64) bool { return r != nil && r.bits.Contains(uint64(row)) }

// Last is the greatest position; false if there is none.
func (r *RowSet) Last() (int64, bool) {
	if r == nil || r.bits.IsEmpty() {
		return 0, false
	}
	return int64(r.bits.Maximum()), true
}

// Without is the rows that other does not have; never nil.
func (r *RowSet) Without(other *RowSet) *RowSet {
	switch {
	case r == nil:
		return &RowSet{roaring64.New()}
	case other == nil:
		return r
	}
	return &RowSet{roaring64.AndNot(r.bits, other.bits)}
}

// Storage types of a deletion vector (delta.md 2.11).
const (
	vectorInFile   = "u" // a file of the table, named by a UUID
	vectorInline   = "i"
	vectorAbsolute = "p" // a file by its absolute path
)

// What the bytes of a vector begin with.
const (
	portableMagic = 1681511377 // little endian, as everybody writes it
	nativeMagic   = 1681511376 // big endian, the format of the protocol's own example
)

// DeletedRows reads a deletion vector; nil gives the empty set. A vector whose size, checksum or cardinality is not what the action or the file
// says is ErrCorrupt.
func (t *Table) DeletedRows(ctx context.Context, dv *DeletionVector) (*RowSet, error) {
	if dv == nil {
		return nil, nil
	}
	data, err := t.vectorBytes(ctx, dv)
	if err != nil {
		return nil, fmt.Errorf("deletion vector %s: %w", dv.id(), err)
	}
	rows, err := parseVector(data)
	if err != nil {
		return nil, fmt.Errorf("deletion vector %s: %w: %w", dv.id(), ErrCorrupt, err)
	}
	if rows.Len() != dv.Cardinality {
		return nil, fmt.Errorf("deletion vector %s: %w: it has %d rows, the log says %d", dv.id(), ErrCorrupt, rows.Len(), dv.Cardinality)
	}
	return rows, nil
}

// id tells vectors of one file apart.
func (dv *DeletionVector) id() string {
	id := dv.StorageType + dv.PathOrInlineDV
	if dv.Offset != nil {
		id += fmt.Sprintf("@%d", *dv.Offset)
	}
	return id
}

// vectorBytes is the vector from its magic on, without what is around it in a file.
func (t *Table) vectorBytes(ctx context.Context, dv *DeletionVector) ([]byte, error) {
	if dv.StorageType == vectorInline {
		data, err := decodeZ85(dv.PathOrInlineDV)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if dv.SizeInBytes < 0 || dv.SizeInBytes > int64(len(data)) {
			return nil, fmt.Errorf("%w: %d bytes, the log says %d", ErrCorrupt, len(data), dv.SizeInBytes)
		}
		return data[:dv.SizeInBytes], nil // what is left is the padding
	}
	name, err := vectorName(t.st, dv)
	if err != nil {
		return nil, err
	}
	f, err := t.st.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	data, err := readVector(f, dv)
	return data, errors.Join(err, f.Close())
}

// vectorName is the name of the file that a vector is in.
func vectorName(st store.Store, dv *DeletionVector) (string, error) {
	const encodedUUID = 20
	switch {
	case dv.StorageType == vectorAbsolute:
		return DataName(st, dv.PathOrInlineDV)
	case dv.StorageType != vectorInFile:
		return "", fmt.Errorf("%w: storage type %q", ErrUnsupported, dv.StorageType)
	case len(dv.PathOrInlineDV) < encodedUUID:
		return "", fmt.Errorf("%w: %q names no file", ErrCorrupt, dv.PathOrInlineDV)
	}
	prefix, encoded := dv.PathOrInlineDV[:len(dv.PathOrInlineDV)-encodedUUID], dv.PathOrInlineDV[len(dv.PathOrInlineDV)-encodedUUID:]
	raw, err := decodeZ85(encoded)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	id, err := uuid.FromBytes(raw)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	name := "deletion_vector_" + id.String() + ".bin"
	if prefix != "" {
		name = prefix + "/" + name
	}
	return name, nil
}

// readVector reads the one vector of a file that dv is about.
func readVector(f store.File, dv *DeletionVector) ([]byte, error) {
	const around = 8 // the size before the vector, its checksum behind
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
	}
	offset := int64(1) // behind the version of the file's format
	if dv.Offset != nil {
		offset = *dv.Offset
	}
	if dv.SizeInBytes < 0 || offset < 1 || offset > f.Size()-around || dv.SizeInBytes > f.Size()-offset-around {
		return nil, bad("%d bytes at %d of a file of %d", dv.SizeInBytes, offset, f.Size())
	}
	version := make([]byte, 1)
	data := make([]byte, dv.SizeInBytes+around)
	for _, part := range []struct {
		p  []byte
		at int64
	}{{version, 0}, {data, offset}} {
		if _, err := f.ReadAt(part.p, part.at); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	if version[0] != 1 {
		return nil, fmt.Errorf("%w: version %d of the format", ErrUnsupported, version[0])
	}
	if size := binary.BigEndian.Uint32(data); int64(size) != dv.SizeInBytes {
		return nil, bad("the file says %d bytes, the log %d", size, dv.SizeInBytes)
	}
	vector, sum := data[4:len(data)-4], binary.BigEndian.Uint32(data[len(data)-4:])
	if crc32.ChecksumIEEE(vector) != sum {
		return nil, bad("the checksum does not match")
	}
	return vector, nil
}

// parseVector reads a vector of either format.
func parseVector(data []byte) (rows *RowSet, err error) {
	defer func() {
		if r := recover(); r != nil { // the library panics on some damage
			rows, err = nil, fmt.Errorf("%v", r)
		}
	}()
	const head = 12 // the magic and the number of buckets
	switch {
	case len(data) >= 8 && binary.BigEndian.Uint32(data) == nativeMagic:
		if data, err = portableVector(data[4:]); err != nil {
			return nil, err
		}
	case len(data) >= head && binary.LittleEndian.Uint32(data) == portableMagic:
		data = data[4:]
	default:
		return nil, errors.New("not a deletion vector")
	}
	if buckets := binary.LittleEndian.Uint64(data); buckets > uint64(len(data))/8 { // each takes more than its key
		return nil, fmt.Errorf("%d buckets in %d bytes", buckets, len(data))
	}
	bits := roaring64.New()
	if _, err := bits.ReadFrom(bytes.NewReader(data)); err != nil {
		return nil, err
	}
	if err := bits.Validate(); err != nil {
		return nil, err
	}
	if !bits.IsEmpty() && bits.Maximum() > math.MaxInt64 {
		return nil, fmt.Errorf("row %d", bits.Maximum())
	}
	return &RowSet{bits}, nil
}

// portableVector turns the native form, 32-bit bitmaps each behind its size, into the portable one, which has each behind its key.
func portableVector(data []byte) ([]byte, error) {
	buckets := binary.BigEndian.Uint32(data)
	data = data[4:]
	out := binary.LittleEndian.AppendUint64(nil, uint64(buckets))
	for key := range buckets {
		if len(data) < 4 || uint64(binary.BigEndian.Uint32(data)) > uint64(len(data)-4) {
			return nil, errors.New("a bucket is cut off")
		}
		end := 4 + binary.BigEndian.Uint32(data)
		out = append(binary.LittleEndian.AppendUint32(out, key), data[4:end]...)
		data = data[end:]
	}
	return out, nil
}

const z85Alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

// decodeZ85 decodes ZeroMQ's base 85: five characters are four bytes.
func decodeZ85(s string) ([]byte, error) {
	if len(s)%5 != 0 {
		return nil, fmt.Errorf("z85 of %d characters", len(s))
	}
	out := make([]byte, 0, len(s)/5*4)
	for ; len(s) > 0; s = s[5:] {
		n := uint64(0)
		for i := range 5 {
			digit := strings.IndexByte(z85Alphabet, s[i])
			if digit < 0 {
				return nil, fmt.Errorf("%q is no character of z85", s[i])
			}
			n = n*85 + uint64(digit)
		}
		if n > 1<<32-1 {
			return nil, errors.New("z85 out of range")
		}
		out = binary.BigEndian.AppendUint32(out, uint32(n))
	}
	return out, nil
}
