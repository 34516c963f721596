package deltalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// ParseCommit reads a commit file: one action a line. Unknown actions and fields are passed over, as the protocol wants.
// The error matches ErrCorrupt and names the line.
func ParseCommit(data []byte) ([]Action, error) {
	var actions []Action
	err := eachLine(data, func(line []byte) error {
		var a Action
		if err := json.Unmarshal(line, &a); err != nil {
			return err
		}
		if err := a.check(); err != nil {
			return err
		}
		if !a.unknown() {
			actions = append(actions, a)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("parse commit: %w", err)
	}
	return actions, nil
}

// eachLine gives the lines of a file of actions to read, and says at which it failed: the error matches ErrCorrupt.
func eachLine(data []byte, read func(line []byte) error) error {
	for n := 1; len(data) > 0; n++ {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := read(line); err != nil {
			return fmt.Errorf("line %d: %w: %w", n, ErrCorrupt, err)
		}
	}
	return nil
}

// unknown reports whether the line held no action that this package knows.
func (a *Action) unknown() bool {
	return a.Add == nil && a.Remove == nil && a.CDC == nil && a.Metadata == nil && a.Protocol == nil && a.Txn == nil &&
		a.DomainMetadata == nil && a.CommitInfo == nil
}

// check finds what no table can mean.
func (a *Action) check() error {
	switch {
	case a.Add != nil && a.Add.Path == "":
		return errors.New("add without a path")
	case a.Remove != nil && a.Remove.Path == "":
		return errors.New("remove without a path")
	case a.CDC != nil && a.CDC.Path == "":
		return errors.New("cdc without a path")
	case a.Txn != nil && a.Txn.AppID == "":
		return errors.New("txn without an appId")
	case a.Metadata != nil && a.Metadata.SchemaString == "":
		return errors.New("metaData without a schemaString")
	}
	return nil
}

// encodeCommit writes actions as a commit file.
func encodeCommit(actions []Action) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	for i := range actions {
		if err := enc.Encode(&actions[i]); err != nil {
			return nil, fmt.Errorf("encode commit: %w", err)
		}
	}
	return buf.Bytes(), nil
}

// commitInfo returns the commitInfo of a commit, or nil.
func commitInfo(actions []Action) CommitInfo {
	for i := range actions {
		if actions[i].CommitInfo != nil {
			return actions[i].CommitInfo
		}
	}
	return nil
}

// String returns the text of key if it is a JSON string, else "".
func (c CommitInfo) String(key string) string {
	var s string
	if json.Unmarshal(c[key], &s) != nil {
		return ""
	}
	return s
}

// Map returns the texts of key if it is a JSON object of texts, else nil.
func (c CommitInfo) Map(key string) map[string]string {
	var m map[string]string
	if json.Unmarshal(c[key], &m) != nil {
		return nil
	}
	return m
}

// Int returns the value of key if it is a JSON integer.
func (c CommitInfo) Int(key string) (int64, bool) {
	var n int64
	if raw, ok := c[key]; !ok || json.Unmarshal(raw, &n) != nil {
		return 0, false
	}
	return n, true
}
