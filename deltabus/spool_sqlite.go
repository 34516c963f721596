package deltabus

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// spool is a file of accepted messages that are not durable in the table yet. Calls are serialised by the publisher's
// turn.
type spool struct {
	db      *sql.DB // nil once closed
	state   spoolState
	trimmed int64    // everything below is removed
	left    []*entry // what the last publisher left, until it is taken over
}

// spoolState is the publisher's identity and numbers.
type spoolState struct {
	producerID string
	nextSeq    int64
	lastAt     time.Time
	mark       mark // version -1: none
}

// spoolVersion is the layout of the file, in its user_version.
const spoolVersion = 1

const spoolSchema = `
CREATE TABLE IF NOT EXISTS publisher (
	one INTEGER PRIMARY KEY CHECK (one = 1), bus TEXT NOT NULL, producer_id TEXT NOT NULL, next_seq INTEGER NOT NULL,
	last_published_at INTEGER NOT NULL, mark_seq INTEGER NOT NULL, mark_version INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS outbox (
	producer_seq INTEGER PRIMARY KEY, queued_at INTEGER NOT NULL, published_at INTEGER NOT NULL, message_id TEXT NOT NULL, topic TEXT NOT NULL,
	key TEXT NOT NULL, source TEXT NOT NULL, type TEXT NOT NULL, subject TEXT NOT NULL, content_type TEXT NOT NULL,
	payload BLOB, headers TEXT NOT NULL, correlation_id TEXT NOT NULL
) STRICT;
`

// openSpool opens or makes the spool of a bus at path, locks it, and reads what is on it.
func openSpool(path, bus string) (*spool, error) {
	if strings.Contains(path, "?") {
		return nil, errors.New("the path may not contain a question mark")
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // the settings and the lock belong to one connection
	s := &spool{db: db}
	if err := s.load(bus); err != nil {
		_ = db.Close() // the first error is the one that matters
		if e := (*sqlite.Error)(nil); errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_BUSY {
			return nil, fmt.Errorf("%w: another publisher has it open: close that one, or use a spool of its own for each", ErrSpoolInUse)
		}
		return nil, err
	}
	return s, nil
}

func (s *spool) load(bus string) error {
	// Exclusive: the lock is held until the connection or the process ends. Full: a commit is synced when it returns.
	for _, pragma := range []string{"busy_timeout = 0", "locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL", "fullfsync = 1"} {
		if _, err := s.db.Exec("PRAGMA " + pragma); err != nil {
			return err
		}
	}
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	var version int
	if err := tx.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version != 0 && version != spoolVersion {
		return fmt.Errorf("the spool has layout %d, this program knows %d: publish it with the program that wrote it", version, spoolVersion)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	if _, err := tx.Exec(spoolSchema + fmt.Sprintf("PRAGMA user_version = %d;", spoolVersion)); err != nil {
		return err
	}
	if _, err := tx.Exec("INSERT OR IGNORE INTO publisher VALUES (1, ?, ?, 0, 0, 0, -1)", bus, id.String()); err != nil {
		return err
	}
	var owner string
	var lastAt int64
	st := &s.state
	if err := tx.QueryRow("SELECT bus, producer_id, next_seq, last_published_at, mark_seq, mark_version FROM publisher").
		Scan(&owner, &st.producerID, &st.nextSeq, &lastAt, &st.mark.seq, &st.mark.version); err != nil {
		return err
	}
	if owner != bus {
		return fmt.Errorf("the spool belongs to bus %s, not to %s", owner, bus)
	}
	st.lastAt = time.UnixMicro(lastAt).UTC()
	if err := s.loadMessages(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *spool) loadMessages(tx *sql.Tx) error {
	rows, err := tx.Query(`SELECT producer_seq, queued_at, published_at, message_id, topic, key, source, type, subject, content_type, payload, headers,
		correlation_id FROM outbox ORDER BY producer_seq`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		e := &entry{Delivery: Delivery{done: make(chan struct{})}}
		m, r := &e.msg, &e.receipt
		var queued, published int64
		var headers []byte
		if err := rows.Scan(&r.ProducerSeq, &queued, &published, &m.ID, &m.Topic, &m.Key, &m.Source, &m.Type, &m.Subject, &m.ContentType, &m.Payload,
			&headers, &m.CorrelationID); err != nil {
			return err
		}
		if err := json.Unmarshal(headers, &m.Headers); err != nil {
			return fmt.Errorf("headers of message %s: %w", m.ID, err)
		}
		r.MessageID, r.PublishedAt = m.ID, time.UnixMicro(published).UTC()
		e.queued, e.bytes = time.UnixMicro(queued), messageSize(m)
		e.handed = true // who knows
		s.left = append(s.left, e)
	}
	return rows.Err()
}

// write puts messages on the spool, synced, with the numbers that come after them.
func (s *spool) write(batch []*entry, state spoolState) error {
	return s.update(state, func(tx *sql.Tx) error {
		stmt, err := tx.Prepare("INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
		if err != nil {
			return err
		}
		defer stmt.Close()
		for _, e := range batch {
			m, r := &e.msg, &e.receipt
			headers, err := json.Marshal(m.Headers)
			if err != nil {
				return err
			}
			if _, err := stmt.Exec(r.ProducerSeq, e.queued.UnixMicro(), r.PublishedAt.UnixMicro(), m.ID, m.Topic, m.Key, m.Source, m.Type, m.Subject,
				m.ContentType, m.Payload, string(headers), m.CorrelationID); err != nil {
				return err
			}
		}
		return nil
	})
}

// trim removes messages below first.
func (s *spool) trim(first int64, state spoolState) error {
	err := s.update(state, func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM outbox WHERE producer_seq < ?", first)
		return err
	})
	if err == nil {
		s.trimmed = first
	}
	return err
}

func (s *spool) update(state spoolState, f func(*sql.Tx) error) error {
	if s.db == nil {
		return errors.New("the spool is closed")
	}
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := f(tx); err != nil {
		return err
	}
	if _, err := tx.Exec("UPDATE publisher SET next_seq = ?, last_published_at = ?, mark_seq = ?, mark_version = ?",
		state.nextSeq, state.lastAt.UnixMicro(), state.mark.seq, state.mark.version); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.state = state
	return nil
}

func (s *spool) close() error {
	if s.db == nil {
		return nil
	}
	err := s.db.Close()
	s.db = nil
	return err
}
