package deltalog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/parquet-go/parquet-go"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// portable is the bytes of a vector with these rows.
func portable(tb testing.TB, rows ...uint64) []byte {
	tb.Helper()
	bits, err := roaring64.BitmapOf(rows...).ToBytes()
	if err != nil {
		tb.Fatal(err)
	}
	return append(binary.LittleEndian.AppendUint32(nil, portableMagic), bits...)
}

// vectorFile is a file with one vector behind some other bytes, and its offset.
func vectorFile(vector []byte) (file []byte, offset int64) {
	file = append([]byte{1}, "another vector"...)
	offset = int64(len(file))
	file = binary.BigEndian.AppendUint32(file, uint32(len(vector)))
	file = append(file, vector...)
	return binary.BigEndian.AppendUint32(file, crc32.ChecksumIEEE(vector)), offset
}

func positions(r *RowSet) (out []int64) {
	for i := int64(0); i < 100 && r.Len() > int64(len(out)); i++ {
		if r.Contains(i) {
			out = append(out, i)
		}
	}
	return out
}

// TestDeletionVectorForms: inline in both formats, and in a file by each kind of name.
func TestDeletionVectorForms(t *testing.T) {
	t.Parallel()
	st, err := store.NewLocal(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	tab := newTable(st, Options{}.withDefaults())
	file, offset := vectorFile(portable(t, 1, 5))
	const id = "d2c639aa-8816-431a-aaf6-d3fe2512ff61" // the example of the protocol
	for _, name := range []string{"ab/deletion_vector_" + id + ".bin", "deletion_vector_" + id + ".bin", "x y.bin"} {
		if err := st.Put(t.Context(), name, file, store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	size := int64(len(file)) - offset - 8
	for name, c := range map[string]struct {
		dv   *DeletionVector
		want []int64
	}{
		"none":               {nil, nil},
		"the protocol's own": {&DeletionVector{StorageType: "i", PathOrInlineDV: "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", SizeInBytes: 40, Cardinality: 6}, []int64{3, 4, 7, 11, 18, 29}},
		"inline":             {&DeletionVector{StorageType: "i", PathOrInlineDV: "^Bg9^0rr910000000000iXQKl0rr91000315c8Xg000f5", SizeInBytes: 36, Cardinality: 2}, []int64{0, 5}},
		"in a file":          {&DeletionVector{StorageType: "u", PathOrInlineDV: "^-aqEH.-t@S}K{vb[*k^", Offset: &offset, SizeInBytes: size, Cardinality: 2}, []int64{1, 5}},
		"below a prefix":     {&DeletionVector{StorageType: "u", PathOrInlineDV: "ab^-aqEH.-t@S}K{vb[*k^", Offset: &offset, SizeInBytes: size, Cardinality: 2}, []int64{1, 5}},
		"by absolute path":   {&DeletionVector{StorageType: "p", PathOrInlineDV: st.URL("x y.bin"), Offset: &offset, SizeInBytes: size, Cardinality: 2}, []int64{1, 5}},
	} {
		got, err := tab.DeletedRows(t.Context(), c.dv)
		if err != nil || !slices.Equal(positions(got), c.want) {
			t.Errorf("%s: %v, %v, expected %v", name, positions(got), err, c.want)
		}
	}
}

// TestDamagedDeletionVectors are refused: rows that were deleted must not come back.
func TestDamagedDeletionVectors(t *testing.T) {
	t.Parallel()
	good, offset := vectorFile(portable(t, 1, 5))
	size := int64(len(good)) - offset - 8
	for name, damage := range map[string]func(file []byte, dv *DeletionVector) []byte{
		"checksum":            func(f []byte, _ *DeletionVector) []byte { f[len(f)-1]++; return f },
		"a bit":               func(f []byte, _ *DeletionVector) []byte { f[offset+6] ^= 1; return f },
		"cut off":             func(f []byte, _ *DeletionVector) []byte { return f[:len(f)-5] },
		"another size":        func(f []byte, dv *DeletionVector) []byte { dv.SizeInBytes--; return f },
		"another offset":      func(f []byte, dv *DeletionVector) []byte { at := offset - 3; dv.Offset = &at; return f },
		"beyond the end":      func(f []byte, dv *DeletionVector) []byte { at := int64(1 << 40); dv.Offset = &at; return f },
		"a negative size":     func(f []byte, dv *DeletionVector) []byte { dv.SizeInBytes = -1; return f },
		"another cardinality": func(f []byte, dv *DeletionVector) []byte { dv.Cardinality = 3; return f },
		"no path":             func(f []byte, dv *DeletionVector) []byte { dv.PathOrInlineDV = "short"; return f },
		"no z85":              func(f []byte, dv *DeletionVector) []byte { dv.StorageType, dv.PathOrInlineDV = "i", "~~~~~"; return f },
	} {
		st := store.NewMemory()
		dv := &DeletionVector{StorageType: "u", PathOrInlineDV: "^-aqEH.-t@S}K{vb[*k^", Offset: &offset, SizeInBytes: size, Cardinality: 2}
		file := damage(slices.Clone(good), dv)
		if err := st.Put(t.Context(), "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", file, store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if rows, err := newTable(st, Options{}.withDefaults()).DeletedRows(t.Context(), dv); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, %v", name, positions(rows), err)
		}
	}
	dv := &DeletionVector{StorageType: "z", PathOrInlineDV: "x"}
	if _, err := newTable(store.NewMemory(), Options{}.withDefaults()).DeletedRows(t.Context(), dv); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a storage type of the future: %v", err)
	}
}

// TestSelectedRows reads a file of several row groups with every kind of run between rows that are given and rows that are not.
func TestSelectedRows(t *testing.T) {
	t.Parallel()
	const count = 30_000
	schema := testColumns(t, "n BIGINT", "l ARRAY<BIGINT>")
	table, snap := memoryTable(t, schema)
	var written []parquet.Row
	for i := range int64(count) {
		written = append(written, parquet.Row{
			parquet.Int64Value(i).Level(0, 1, 1), parquet.Int64Value(i).Level(0, 3, 0), parquet.Int64Value(-i).Level(1, 3, 0),
		})
	}
	node := parquet.Group{"n": parquet.Optional(parquet.Leaf(parquet.Int64Type)), "l": parquet.Optional(parquet.List(parquet.Optional(parquet.Leaf(parquet.Int64Type))))}
	for _, r := range written { // columns in the order of their names
		r[0], r[1], r[2] = r[1], r[2], r[0]
	}
	add := putFile(t, table, "x.parquet", writeForeign(t, node, written, parquet.MaxRowsPerRowGroup(7000)))
	bits := func(in func(i uint64) bool) *RowSet {
		b := roaring64.New()
		for i := range uint64(count) {
			if in(i) {
				b.Add(i)
			}
		}
		return &RowSet{b}
	}
	for name, in := range map[string]func(i uint64) bool{
		"none": func(uint64) bool { return false }, "all": func(uint64) bool { return true }, "the first": func(i uint64) bool { return i == 0 },
		"the last": func(i uint64) bool { return i == count-1 }, "every other": func(i uint64) bool { return i%2 == 0 },
		"a whole group": func(i uint64) bool { return i >= 7000 && i < 14000 }, "across groups": func(i uint64) bool { return i > 6990 && i < 14010 },
		"blocks": func(i uint64) bool { return i/8192%2 == 1 },
	} {
		set := bits(in)
		var want, rest []string
		for i := range uint64(count) {
			row := fmt.Sprintf(`{"n":%d,"l":[%d,%d]}`, i, i, -int64(i))
			if in(i) {
				want = append(want, row)
			} else {
				rest = append(rest, row)
			}
		}
		read := func(f DataFile) (out []string) {
			f.Path = add.Path
			for rec, err := range table.ReadFile(context.Background(), snap, f, nil) {
				if err != nil {
					t.Fatal(err)
				}
				for i := range int(rec.NumRows()) {
					row, err := AppendRowJSON(nil, rec, i)
					if err != nil {
						t.Fatal(err)
					}
					out = append(out, string(row))
				}
			}
			return out
		}
		vector := portable(t, set.bits.ToArray()...)
		file, offset := vectorFile(vector)
		putFile(t, table, "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", file)
		dv := &DeletionVector{StorageType: "u", PathOrInlineDV: "^-aqEH.-t@S}K{vb[*k^", Offset: &offset, SizeInBytes: int64(len(vector)), Cardinality: set.Len()}
		if got := read(DataFile{Only: set}); !slices.Equal(got, want) {
			t.Errorf("only %s: %d rows, expected %d", name, len(got), len(want))
		}
		if got := read(DataFile{Deleted: dv}); !slices.Equal(got, rest) {
			t.Errorf("without %s: %d rows, expected %d", name, len(got), len(rest))
		}
	}
}

// FuzzDeletionVector: an error or a set, never a panic, and no more memory than the bytes can mean.
func FuzzDeletionVector(f *testing.F) {
	f.Add(portable(f, 1, 5))
	f.Add(portable(f, 1<<40, 7))
	f.Add(portable(f, 1<<63))
	f.Add([]byte("d9\xd3\xd0\x00\x00\x00\x01\x00\x00\x00\x1c"))
	f.Add(append(binary.LittleEndian.AppendUint32(nil, portableMagic), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := parseVector(data)
		if err != nil {
			return
		}
		selected := newSelection(rows, nil)
		for at := int64(0); at < 1000; {
			given, n := selected.run(at, 1000-at)
			if n < 1 || n > 1000-at {
				t.Fatalf("a run of %d rows at %d", n, at)
			}
			for i := at; i < at+n; i++ {
				if rows.Contains(i) != given {
					t.Fatalf("row %d", i)
				}
			}
			at += n
		}
	})
}

// FuzzZ85 holds the decoder to what it refuses.
func FuzzZ85(f *testing.F) {
	f.Add("^-aqEH.-t@S}K{vb[*k^")
	f.Add("%nSc0")
	f.Add("#####")
	f.Fuzz(func(t *testing.T, s string) {
		out, err := decodeZ85(s)
		if err == nil && (len(out) != len(s)/5*4 || strings.Trim(s, z85Alphabet) != "") {
			t.Fatalf("%q gives %x", s, out)
		}
	})
}
