package deltabus

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

func TestInitMakesWhatIsMissing(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	cfg := Config{Workspace: OnStore(st)}
	if _, err := Open(t.Context(), cfg); !errors.Is(err, ErrNoBus) {
		t.Errorf("open before init: %v", err)
	}
	var wg sync.WaitGroup
	for range 4 { // by several at once, as several processes do
		wg.Go(func() {
			if _, err := Init(t.Context(), Config{Workspace: OnStore(st)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	snap := b.Messages().Cached()
	if snap.Version() != 0 || !snap.ChangeDataFeed() || len(snap.Metadata().PartitionColumns) != 0 {
		t.Errorf("messages: version %d, metadata %+v", snap.Version(), snap.Metadata())
	}
	for key, want := range map[string]string{
		"delta.logRetentionDuration": "interval 30 days", "delta.deletedFileRetentionDuration": "interval 30 days",
		"delta.setTransactionRetentionDuration": "interval 30 days",
	} {
		if got := snap.Property(key); got != want {
			t.Errorf("messages %s is %q", key, got)
		}
	}
	for _, name := range []string{CheckpointsTable, DeadLettersTable} {
		table, err := cfg.Workspace.Table(t.Context(), DefaultSchema+"."+name)
		if err != nil {
			t.Fatal(err)
		}
		if snap := table.Cached(); snap.ChangeDataFeed() || !slices.Equal(snap.Metadata().PartitionColumns, []string{"consumer_id"}) {
			t.Errorf("%s: metadata %+v", name, snap.Metadata())
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{{}, {Workspace: OnStore(store.NewMemory()), Schema: "main"}, {Workspace: OnStore(store.NewMemory()), Schema: "a.b.c"}} {
		if b, err := Init(t.Context(), cfg); err == nil {
			t.Errorf("%+v made %v", cfg, b.Schema())
		}
	}
}

func TestTableOfAnotherShapeIsRefusedByName(t *testing.T) {
	t.Parallel()
	spec := func(change func(*deltalog.TableSpec)) deltalog.TableSpec {
		s := TableSpecs()[MessagesTable]
		s.Schema.Fields = slices.Clone(s.Schema.Fields)
		change(&s)
		return s
	}
	field := func(ddl string) deltalog.Field { return columns([]string{ddl}).Fields[0] }
	for _, tc := range []struct {
		name, want string
		spec       deltalog.TableSpec
	}{
		{"column missing", "no column published_at", spec(func(s *deltalog.TableSpec) { s.Schema.Fields = s.Schema.Fields[:13] })},
		{"other type", "column key is bigint, not string", spec(func(s *deltalog.TableSpec) { s.Schema.Fields[2] = field("key BIGINT") })},
		{"no feed", "the change data feed is not enabled", spec(func(s *deltalog.TableSpec) { s.Configuration = nil })},
		{"partitioned", "partitioned by (topic), not ()", spec(func(s *deltalog.TableSpec) { s.PartitionColumns = []string{"topic"} })},
		{"required column more", "column more is not the bus's", spec(func(s *deltalog.TableSpec) {
			s.Schema.Fields = append(s.Schema.Fields, field("more BIGINT NOT NULL"))
		})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := OnStore(store.NewMemory())
			if _, err := w.CreateTable(t.Context(), DefaultSchema+"."+MessagesTable, tc.spec); err != nil {
				t.Fatal(err)
			}
			_, err := Init(t.Context(), Config{Workspace: w})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "main.deltabus.messages") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestColumnsOfOthersAreLeftAlone has every table in another order, with a column more: the bus goes by names.
func TestColumnsOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := OnStore(store.NewMemory())
	for name, spec := range TableSpecs() {
		fields := slices.Clone(spec.Schema.Fields)
		slices.Reverse(fields)
		spec.Schema.Fields = append([]deltalog.Field{columns([]string{"note STRING"}).Fields[0]}, fields...)
		if _, err := w.CreateTable(t.Context(), DefaultSchema+"."+name, spec); err != nil {
			t.Fatal(err)
		}
	}
	b, err := Init(t.Context(), Config{Workspace: w})
	if err != nil {
		t.Fatal(err)
	}
	publishBatch(t, b, Message{Topic: "t", Key: "k", Payload: []byte("bad")}, Message{Topic: "t", Payload: []byte("good")})
	mended := false
	handle := func(e Event) error {
		if string(e.Payload) == "bad" && !mended {
			return Skip(errors.New("bad"))
		}
		return nil
	}
	if got := consume(t, b, "c", "t", handle); !slices.Equal(got, []string{"good"}) {
		t.Errorf("handled %v", got)
	}
	mended = true
	letters, err := b.DeadLetters().Replay(t.Context(), DeadLetterFilter{Consumer: "c"}, ToConsumer)
	if err != nil || len(letters) != 1 || letters[0].Event.Key != "k" {
		t.Fatalf("replayed %+v, %v", letters, err)
	}
	if got := consume(t, b, "c", "t", handle); !slices.Equal(got, []string{"bad"}) {
		t.Errorf("handled after the replay %v", got)
	}
}
