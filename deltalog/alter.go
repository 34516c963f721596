package deltalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// NewColumn is a column, or a field of a struct, that AddColumns adds.
type NewColumn struct {
	// Parent leads to the struct it is added to: names of columns and fields, "element" for the elements of an array, "key" and "value" for those of a
	// map; empty: the table itself.
	Parent []string
	// Field is what is added. It may be null, as it is in all rows that are there.
	Field Field
	// First puts it first, After behind the named one; else it is the last.
	First bool
	After string
}

// AddColumns adds columns. Files stay as they are: their rows have null there. As all changes of metadata it conflicts with another one at the same time.
func (t *Table) AddColumns(ctx context.Context, columns ...NewColumn) (*Commit, error) {
	return t.alter(ctx, "ADD COLUMNS", func(a *alteration) (map[string]any, error) {
		if len(columns) == 0 {
			return nil, errors.New("no column is given")
		}
		type added struct {
			Column   json.RawMessage `json:"column"`
			Position string          `json:"position,omitempty"`
		}
		var told []added
		for _, c := range columns {
			if err := a.add(c); err != nil {
				return nil, fmt.Errorf("column %s: %w", strings.Join(c.path(), "."), err)
			}
			position := ""
			switch {
			case c.First:
				position = "FIRST"
			case c.After != "":
				position = "AFTER " + c.After
			}
			told = append(told, added{toldField(c.path(), c.Field), position})
		}
		return map[string]any{"columns": string(mustJSON(told))}, nil
	})
}

func (c NewColumn) path() []string { return append(slices.Clip(c.Parent), c.Field.Name) }

// add adds one column to the schema.
func (a *alteration) add(c NewColumn) error {
	if !c.Field.Nullable {
		return errors.New("a column that is added may not be NOT NULL, since the rows that are there have null in it")
	}
	limit, err := c.Field.TextLimit()
	if err != nil {
		return err
	}
	if limit != nil && len(c.Parent) > 0 {
		return fmt.Errorf("%w: VARCHAR and CHAR in a field that is added to a struct", ErrUnsupported)
	}
	return a.editStruct(c.Parent, func(s *Struct) error {
		if _, taken := s.field(c.Field.Name); taken {
			return errors.New("there is one of this name already")
		}
		at := len(s.Fields)
		switch {
		case c.First && c.After != "":
			return errors.New("it cannot be both the first and behind another")
		case c.First:
			at = 0
		case c.After != "":
			if at = s.index(c.After) + 1; at == 0 {
				return fmt.Errorf("no column %s to put it behind", c.After)
			}
		}
		s.Fields = slices.Insert(s.Fields, at, c.Field)
		return nil
	})
}

// CommentColumn sets the comment of a column, or of a field within it, which path leads to as NewColumn.Parent does; "" takes it away.
func (t *Table) CommentColumn(ctx context.Context, path []string, comment string) (*Commit, error) {
	return t.changeColumn(ctx, path, func(f *Field) {
		if delete(f.Metadata, "comment"); comment != "" {
			f.set("comment", comment)
		}
	})
}

// DropNotNull lets a column, or a field within one, be null from now on.
func (t *Table) DropNotNull(ctx context.Context, path []string) (*Commit, error) {
	return t.changeColumn(ctx, path, func(f *Field) { f.Nullable = true })
}

func (t *Table) changeColumn(ctx context.Context, path []string, change func(*Field)) (*Commit, error) {
	return t.alter(ctx, "CHANGE COLUMN", func(a *alteration) (map[string]any, error) {
		if len(path) == 0 {
			return nil, errors.New("no column is given")
		}
		var told json.RawMessage
		err := a.editStruct(path[:len(path)-1], func(s *Struct) error {
			i := s.index(path[len(path)-1])
			if i < 0 {
				return fmt.Errorf("no column %s", strings.Join(path, "."))
			}
			f := &s.Fields[i]
			f.Metadata = maps.Clone(f.Metadata)
			change(f)
			told = toldField(path, *f)
			return nil
		})
		return map[string]any{"column": string(told)}, err
	})
}

// alteration is metadata in the making.
type alteration struct {
	metadata *Metadata
	schema   Struct
	protocol *Protocol // a copy once it is changed
	upgraded bool
}

// alter commits a change of metadata.
func (t *Table) alter(ctx context.Context, operation string, change func(*alteration) (map[string]any, error)) (*Commit, error) {
	fail := func(err error) (*Commit, error) {
		return nil, fmt.Errorf("%s of %s: %w", strings.ToLower(operation), t.st.URL(""), err)
	}
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return fail(err)
	}
	if snap.writable != nil {
		return fail(snap.writable)
	}
	m := *snap.metadata
	if m.Configuration = maps.Clone(m.Configuration); m.Configuration == nil {
		m.Configuration = map[string]string{}
	}
	a := &alteration{metadata: &m, schema: snap.schema, protocol: snap.protocol}
	parameters, err := change(a)
	if err == nil {
		err = a.finish()
	}
	if err != nil {
		return fail(err)
	}
	tx := Transaction{Base: snap, Operation: operation, Parameters: parameters, Metadata: &m}
	if a.upgraded {
		tx.Protocol = a.protocol
	}
	c, err := t.commit(ctx, tx)
	if err != nil {
		return fail(err)
	}
	t.maybeCheckpoint()
	return c, nil
}

// finish checks the whole, and writes the schema.
func (a *alteration) finish() error {
	if err := a.schema.validate(); err != nil {
		return err
	}
	if _, err := ArrowSchema(a.schema); err != nil {
		return err
	}
	if usesType(a.schema, TimestampNTZ) && !slices.Contains(a.protocol.WriterFeatures, "timestampNtz") {
		return NewClassError("DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT", ErrUnsupported, "type timestamp_ntz wants the feature timestampNtz: set the property delta.feature.timestampNtz to supported first")
	}
	if a.metadata.flag(propChangeDataFeed, false) {
		if err := checkFeedColumns(a.schema); err != nil {
			return err
		}
	}
	text, err := a.schema.MarshalJSON()
	a.metadata.SchemaString = string(text)
	return err
}

// checkFeedColumns refuses columns that have names of the change data feed.
func checkFeedColumns(s Struct) error {
	for _, reserved := range []string{changeType.Name, "_commit_version", "_commit_timestamp"} {
		if _, taken := s.field(reserved); taken {
			return NewClassError("DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS", nil, "column %s is reserved by the change data feed", reserved)
		}
	}
	return nil
}

// editStruct changes the struct that path leads to, in a schema of its own.
func (a *alteration) editStruct(path []string, edit func(*Struct) error) error {
	t, err := editType(a.schema, path, edit)
	if err != nil {
		return err
	}
	a.schema = t.(Struct)
	return nil
}

func editType(t DataType, path []string, edit func(*Struct) error) (DataType, error) {
	if s, ok := t.(Struct); ok && len(path) == 0 {
		s.Fields = slices.Clone(s.Fields)
		return s, edit(&s)
	}
	if len(path) == 0 {
		return nil, fmt.Errorf("%s has no fields", t.SQL())
	}
	var err error
	switch t := t.(type) {
	case Struct:
		i := t.index(path[0])
		if i < 0 {
			return nil, fmt.Errorf("no column %s", path[0])
		}
		t.Fields = slices.Clone(t.Fields)
		t.Fields[i].Type, err = editType(t.Fields[i].Type, path[1:], edit)
		return t, err
	case Array:
		if path[0] == "element" {
			t.Element, err = editType(t.Element, path[1:], edit)
			return t, err
		}
	case Map:
		switch path[0] {
		case "key":
			t.Key, err = editType(t.Key, path[1:], edit)
			return t, err
		case "value":
			t.Value, err = editType(t.Value, path[1:], edit)
			return t, err
		}
	}
	return nil, fmt.Errorf("%s has no %s", t.SQL(), path[0])
}

// index is where a field is, by its name in any case; -1 if there is none.
func (s Struct) index(name string) int {
	return slices.IndexFunc(s.Fields, func(f Field) bool { return strings.EqualFold(f.Name, name) })
}

// toldField is a column as operationParameters tell it: by its whole path, and of a nested type only the kind.
func toldField(path []string, f Field) json.RawMessage {
	kind := "struct"
	switch t := f.Type.(type) {
	case Array:
		kind = "array"
	case Map:
		kind = "map"
	case Primitive:
		kind = string(t)
	case Decimal:
		kind = t.SQL()
	}
	metadata := f.Metadata
	if metadata == nil {
		metadata = map[string]json.RawMessage{}
	}
	return mustJSON(struct {
		Name     string                     `json:"name"`
		Type     string                     `json:"type"`
		Nullable bool                       `json:"nullable"`
		Metadata map[string]json.RawMessage `json:"metadata"`
	}{strings.Join(path, "."), kind, f.Nullable, metadata})
}
