package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/deltabus/deltabus-local/deltalog"
)

// state is a table as the actions up to a version leave it, by the names of files.
type state struct {
	live     map[string]*deltalog.Add
	removed  map[string]*deltalog.Remove
	metadata *deltalog.Metadata
	protocol *deltalog.Protocol
	txns     map[string]deltalog.Txn
	domains  map[string]string
}

func newState() state {
	return state{
		live: map[string]*deltalog.Add{}, removed: map[string]*deltalog.Remove{}, txns: map[string]deltalog.Txn{}, domains: map[string]string{},
	}
}

// apply applies the actions of one version: adds last, since a path may be removed and added again with another deletion vector.
func (s *state) apply(name func(string) string, actions []deltalog.Action) {
	for i := range actions {
		switch a := &actions[i]; {
		case a.Remove != nil:
			n := name(a.Remove.Path)
			delete(s.live, n)
			s.removed[n] = a.Remove
		case a.Metadata != nil:
			s.metadata = a.Metadata
		case a.Protocol != nil:
			s.protocol = a.Protocol
		case a.Txn != nil:
			s.txns[a.Txn.AppID] = *a.Txn
		case a.DomainMetadata != nil && a.DomainMetadata.Removed:
			delete(s.domains, a.DomainMetadata.Domain)
		case a.DomainMetadata != nil:
			s.domains[a.DomainMetadata.Domain] = a.DomainMetadata.Configuration
		}
	}
	for i := range actions {
		if add := actions[i].Add; add != nil {
			n := name(add.Path)
			s.live[n] = add
			delete(s.removed, n)
		}
	}
}

// maxDifferences is how many files are named that two states differ in.
const maxDifferences = 3

// differences says in what other is not s. Removes and txns that may have expired are no difference.
func (s *state) differences(other state) []string {
	var out []string
	files := 0
	differ := func(format string, args ...any) {
		if files++; files <= maxDifferences {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	for _, n := range slices.Sorted(maps.Keys(s.live)) {
		switch add, ok := other.live[n]; {
		case !ok:
			differ("it lacks %s", n)
		case !sameAdd(s.live[n], add):
			differ("it has %s as %s", n, asJSON(add))
		}
	}
	for _, n := range slices.Sorted(maps.Keys(other.live)) {
		if s.live[n] == nil {
			differ("it has %s", n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(other.removed)) {
		if s.removed[n] == nil {
			differ("it has %s as removed", n)
		}
	}
	if files > maxDifferences {
		out = append(out, fmt.Sprintf("and %d more files", files-maxDifferences))
	}
	if !sameMetadata(s.metadata, other.metadata) {
		out = append(out, "its metaData is "+asJSON(other.metadata))
	}
	if !sameProtocol(s.protocol, other.protocol) {
		out = append(out, "its protocol is "+asJSON(other.protocol))
	}
	for _, app := range slices.Sorted(maps.Keys(other.txns)) {
		if own, ok := s.txns[app]; !ok || own.Version != other.txns[app].Version {
			out = append(out, fmt.Sprintf("it has version %d of application %s", other.txns[app].Version, app))
		}
	}
	for _, app := range slices.Sorted(maps.Keys(s.txns)) {
		if _, ok := other.txns[app]; !ok && (s.metadata == nil || s.metadata.Configuration["delta.setTransactionRetentionDuration"] == "") {
			out = append(out, "it lacks application "+app)
		}
	}
	if !maps.Equal(s.domains, other.domains) {
		out = append(out, fmt.Sprintf("its domains are %v", other.domains))
	}
	return out
}

// sameAdd compares what every reader goes by; statistics may be in another form.
func sameAdd(a, b *deltalog.Add) bool {
	if a.Size != b.Size || a.ModificationTime != b.ModificationTime || len(a.PartitionValues) != len(b.PartitionValues) {
		return false
	}
	for k, v := range a.PartitionValues {
		w, ok := b.PartitionValues[k]
		if !ok || text(v) != text(w) { // an empty value is null
			return false
		}
	}
	return asJSON(a.DeletionVector) == asJSON(b.DeletionVector) && (a.Stats == "" || b.Stats == "" || sameJSON(a.Stats, b.Stats))
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func sameMetadata(a, b *deltalog.Metadata) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ID == b.ID && sameJSON(a.SchemaString, b.SchemaString) && slices.Equal(a.PartitionColumns, b.PartitionColumns) &&
		maps.Equal(a.Configuration, b.Configuration)
}

func sameProtocol(a, b *deltalog.Protocol) bool {
	if a == nil || b == nil {
		return a == b
	}
	same := func(x, y []string) bool {
		return slices.Equal(slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y)))
	}
	return a.MinReaderVersion == b.MinReaderVersion && a.MinWriterVersion == b.MinWriterVersion && same(a.ReaderFeatures, b.ReaderFeatures) &&
		same(a.WriterFeatures, b.WriterFeatures)
}

// sameJSON compares JSON texts by what they say; numbers digit by digit.
func sameJSON(a, b string) bool {
	if a == b {
		return true
	}
	decode := func(s string) (v any, ok bool) {
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		return v, d.Decode(&v) == nil
	}
	x, ok := decode(a)
	y, also := decode(b)
	return ok && also && reflect.DeepEqual(x, y)
}

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
