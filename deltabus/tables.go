package deltabus

import (
	"fmt"
	"strings"

	"github.com/deltabus/deltabus-local/deltalog"
)

// The names of a bus's tables, in its schema.
const (
	MessagesTable    = "messages"
	CheckpointsTable = "checkpoints"
	DeadLettersTable = "dead_letters"
)

// messageColumns are the columns of messages (docs/design.md, The three tables), and part of dead_letters.
var messageColumns = []string{
	"message_id STRING NOT NULL", "topic STRING NOT NULL", "key STRING", "source STRING NOT NULL", "type STRING",
	"subject STRING", "content_type STRING", "payload STRING", "payload_bytes BINARY", "headers MAP<STRING,STRING>",
	"correlation_id STRING", "producer_id STRING NOT NULL", "producer_seq BIGINT NOT NULL", "published_at TIMESTAMP NOT NULL",
}

var checkpointColumns = []string{
	"consumer_id STRING NOT NULL", "topic_filter STRING NOT NULL", "table_id STRING NOT NULL", "version BIGINT NOT NULL",
	"position BIGINT NOT NULL", "backfill_version BIGINT", "since_version BIGINT NOT NULL", "epoch BIGINT NOT NULL", "stalled_starts INT NOT NULL",
	"owner STRING", "updated_at TIMESTAMP NOT NULL",
}

var (
	deadLetterHead = []string{"dead_letter_id STRING NOT NULL", "consumer_id STRING NOT NULL"}
	deadLetterTail = []string{
		"commit_version BIGINT NOT NULL", "attempts INT NOT NULL",
		"attempt_log ARRAY<STRUCT<at TIMESTAMP, error STRING, error_type STRING>>", "error STRING NOT NULL", "error_type STRING",
		"error_stack STRING", "first_failed_at TIMESTAMP NOT NULL", "dead_lettered_at TIMESTAMP NOT NULL", "status STRING NOT NULL",
		"status_at TIMESTAMP", "replay_message_id STRING", "origin_dead_letter_id STRING", "replay_number INT NOT NULL",
	}
)

// TableSpecs are the three tables of a bus, by the last part of their names: types that Zerobus accepts, no defaults.
func TableSpecs() map[string]deltalog.TableSpec {
	dead := append(append(append([]string(nil), deadLetterHead...), messageColumns...), deadLetterTail...)
	return map[string]deltalog.TableSpec{
		MessagesTable: {
			Description: "DeltaBus: the events, appended by producers",
			Schema:      columns(messageColumns),
			Configuration: map[string]string{
				"delta.enableChangeDataFeed": "true",
				// How far back the feed reaches, and a rebuilt batch write is recognized (docs/design.md).
				"delta.logRetentionDuration":            "interval 30 days",
				"delta.deletedFileRetentionDuration":    "interval 30 days",
				"delta.setTransactionRetentionDuration": "interval 30 days",
			},
		},
		CheckpointsTable: {
			Description:      "DeltaBus: how far each consumer is; one row a consumer",
			Schema:           columns(checkpointColumns),
			PartitionColumns: []string{"consumer_id"},
			Configuration:    shortRetention(),
		},
		DeadLettersTable: {
			Description:      "DeltaBus: events that failed too often, with why",
			Schema:           columns(dead),
			PartitionColumns: []string{"consumer_id"},
			Configuration:    shortRetention(),
		},
	}
}

// shortRetention is for tables whose rows are replaced: every checkpoint replaces a file, every new status of a dead letter those of its
// consumer. With the usual retentions they would grow far beyond what is in them.
func shortRetention() map[string]string {
	return map[string]string{
		"delta.logRetentionDuration":         "interval 1 hour",
		"delta.deletedFileRetentionDuration": "interval 1 hour",
	}
}

// columns parses column definitions of this package, which are right.
func columns(ddl []string) deltalog.Struct {
	var s deltalog.Struct
	for _, d := range ddl {
		f, err := deltalog.ParseColumn(d)
		if err != nil {
			panic(err)
		}
		s.Fields = append(s.Fields, f)
	}
	return s
}

// checkShape refuses a table that has another shape than spec: columns missing, of another type, or more of them that may not be null. Other
// columns that somebody added are left alone.
func checkShape(name string, spec deltalog.TableSpec, snap *deltalog.Snapshot) error {
	have := map[string]deltalog.Field{}
	for _, f := range snap.Schema().Fields {
		have[f.Name] = f
	}
	var wrong []string
	for _, want := range spec.Schema.Fields {
		f, ok := have[want.Name]
		switch {
		case !ok:
			wrong = append(wrong, "no column "+want.Name)
		case f.Type.SQL() != want.Type.SQL():
			wrong = append(wrong, fmt.Sprintf("column %s is %s, not %s", want.Name, f.Type.SQL(), want.Type.SQL()))
		}
		delete(have, want.Name)
	}
	for _, f := range snap.Schema().Fields {
		if _, extra := have[f.Name]; extra && !f.Nullable {
			wrong = append(wrong, fmt.Sprintf("column %s is not the bus's and NOT NULL", f.Name))
		}
	}
	if got, want := strings.Join(snap.Metadata().PartitionColumns, ","), strings.Join(spec.PartitionColumns, ","); got != want {
		wrong = append(wrong, fmt.Sprintf("partitioned by (%s), not (%s)", got, want))
	}
	if spec.Configuration["delta.enableChangeDataFeed"] == "true" && !snap.ChangeDataFeed() {
		wrong = append(wrong, "the change data feed is not enabled")
	}
	if len(wrong) > 0 {
		return fmt.Errorf("table %s is no table of a bus: %s: use another schema, or drop the table", name, strings.Join(wrong, "; "))
	}
	return nil
}
