package deltalog

import "github.com/RoaringBitmap/roaring/v2/roaring64"

// selection says which rows of a file a reader gives, from its first row to its last.
type selection struct {
	keep bool                    // what is in the set is given, and not what is not in it
	next roaring64.IntPeekable64 // over the set; nil: there is none, and all rows are given
}

func newSelection(only, without *RowSet) *selection {
	switch {
	case only != nil:
		return &selection{true, only.bits.Iterator()}
	case without != nil:
		return &selection{false, without.bits.Iterator()}
	}
	return &selection{}
}

// run is whether the row at is given, and how many rows from it on are treated as it is: at least 1, at most limit.
func (s *selection) run(at, limit int64) (given bool, n int64) {
	if s.next == nil {
		return true, limit
	}
	s.next.AdvanceIfNeeded(uint64(at))
	if !s.next.HasNext() {
		return !s.keep, limit
	}
	if first := int64(s.next.PeekNext()); first > at {
		return !s.keep, min(limit, first-at)
	}
	for n < limit && s.next.HasNext() && int64(s.next.PeekNext()) == at+n {
		s.next.Next()
		n++
	}
	return s.keep, n
}
