package deltalog

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Table properties that this package reads.
const (
	propChangeDataFeed       = "delta.enableChangeDataFeed"
	propAppendOnly           = "delta.appendOnly"
	propCheckpointInterval   = "delta.checkpointInterval"
	propLogRetention         = "delta.logRetentionDuration"
	propDeletedFileRetention = "delta.deletedFileRetentionDuration"
	propTxnRetention         = "delta.setTransactionRetentionDuration"
	propExpiredLogCleanup    = "delta.enableExpiredLogCleanup"
	propICT                  = "delta.enableInCommitTimestamps"
	propICTSince             = "delta.inCommitTimestampEnablementVersion"
	propIndexedCols          = "delta.dataSkippingNumIndexedCols"
)

// What the retentions default to.
const (
	defaultLogRetention         = 30 * 24 * time.Hour
	defaultDeletedFileRetention = 7 * 24 * time.Hour
)

// parseInterval reads a property like "interval 30 days" or "interval 1 week 2 hours". Months and years are refused, as their length varies.
func parseInterval(s string) (time.Duration, error) {
	words := strings.Fields(strings.ToLower(s))
	if len(words) > 0 && words[0] == "interval" {
		words = words[1:]
	}
	if len(words) == 0 || len(words)%2 != 0 {
		return 0, fmt.Errorf("interval %q: write it like \"interval 7 days\"", s)
	}
	var total time.Duration
	for i := 0; i < len(words); i += 2 {
		n, err := strconv.ParseInt(words[i], 10, 64)
		unit, ok := intervalUnits[strings.TrimSuffix(words[i+1], "s")]
		if err != nil || !ok || n < 0 || n > int64(1<<62)/int64(unit) {
			return 0, fmt.Errorf("interval %q: write it like \"interval 7 days\"", s)
		}
		total += time.Duration(n) * unit
	}
	return total, nil
}

var intervalUnits = map[string]time.Duration{
	"microsecond": time.Microsecond, "millisecond": time.Millisecond, "second": time.Second, "minute": time.Minute,
	"hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

// interval is the duration property key of m, or what it defaults to.
func (m *Metadata) interval(key string, otherwise time.Duration) time.Duration {
	if s := m.Configuration[key]; s != "" {
		if d, err := parseInterval(s); err == nil {
			return d
		}
	}
	return otherwise
}

// Retention is how long a table keeps what its newest version does not need.
type Retention struct {
	// Log is for commits (delta.logRetentionDuration, default 30 days); 0: for ever, as delta.enableExpiredLogCleanup is off.
	Log time.Duration
	// Files is for data files (delta.deletedFileRetentionDuration, default 7 days).
	Files time.Duration
	// Transactions is for the txn of an application (delta.setTransactionRetentionDuration); 0, the default: for ever.
	Transactions time.Duration
}

// Retention is what the table's properties say.
func (s *Snapshot) Retention() Retention {
	r := Retention{
		Log:          s.metadata.interval(propLogRetention, defaultLogRetention),
		Files:        s.metadata.interval(propDeletedFileRetention, defaultDeletedFileRetention),
		Transactions: s.metadata.interval(propTxnRetention, 0),
	}
	if !s.metadata.flag(propExpiredLogCleanup, true) {
		r.Log = 0
	}
	return r
}

// flag is the boolean property key of m, or what it defaults to.
func (m *Metadata) flag(key string, otherwise bool) bool {
	switch strings.ToLower(m.Configuration[key]) {
	case "true":
		return true
	case "false":
		return false
	}
	return otherwise
}
