package deltalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ParseType reads a type as SQL writes it, in any case: "BIGINT", "decimal(10,2)", "array<struct<a:int>>".
// VARCHAR and CHAR are STRING: SetType keeps their lengths.
func ParseType(sql string) (DataType, error) {
	var f Field
	if err := f.SetType(sql); err != nil {
		return nil, err
	}
	return f.Type, nil
}

// SetType gives f the type that SQL writes so, as ParseType reads it, with the limits of VARCHAR(n) and CHAR(n) in its metadata.
func (f *Field) SetType(sql string) error {
	p := ddl{s: sql}
	t, limit, err := p.typ(0)
	if err == nil && p.peek() != "" {
		err = fmt.Errorf("unexpected %q", p.peek())
	}
	if err != nil {
		return fmt.Errorf("type %q: %w", sql, err)
	}
	f.setType(t, limit)
	return nil
}

func (f *Field) setType(t DataType, limit *TextLimit) {
	f.Type = t
	if limit != nil {
		f.set(charTypeKey, limit.sql(t))
	}
}

// ParseColumn reads a column definition: "id BIGINT NOT NULL", "name STRING COMMENT 'x'". Names may be back-quoted.
func ParseColumn(sql string) (Field, error) {
	p := ddl{s: sql}
	f, limit, err := p.column(0, false)
	f.setType(f.Type, limit)
	if err == nil && p.peek() != "" {
		err = fmt.Errorf("unexpected %q", p.peek())
	}
	if err != nil {
		return Field{}, fmt.Errorf("column %q: %w; write it like \"id BIGINT NOT NULL\"", sql, err)
	}
	return f, nil
}

// ddl is a scanner over SQL type text.
type ddl struct {
	s   string
	pos int
}

// next takes a word, a quoted word, a string with its quotes, or one sign; "" at the end.
func (p *ddl) next() string {
	for p.pos < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.pos]) >= 0 {
		p.pos++
	}
	if p.pos == len(p.s) {
		return ""
	}
	start := p.pos
	if c := p.s[start]; c == '`' || c == '\'' {
		for p.pos++; p.pos < len(p.s); p.pos++ {
			if p.s[p.pos] == c {
				p.pos++
				if p.pos == len(p.s) || p.s[p.pos] != c { // doubled: the quote itself
					break
				}
			}
		}
		return p.s[start:p.pos]
	}
	for p.pos < len(p.s) {
		r, n := utf8.DecodeRuneInString(p.s[p.pos:])
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			break
		}
		p.pos += n
	}
	if p.pos == start {
		_, n := utf8.DecodeRuneInString(p.s[start:])
		p.pos += n
	}
	return p.s[start:p.pos]
}

func (p *ddl) peek() string {
	at := p.pos
	w := p.next()
	p.pos = at
	return w
}

func (p *ddl) accept(word string) bool {
	if strings.EqualFold(p.peek(), word) {
		p.next()
		return true
	}
	return false
}

func (p *ddl) expect(word string) error {
	if !p.accept(word) {
		return fmt.Errorf("expected %q, found %q", word, p.peek())
	}
	return nil
}

func (p *ddl) name() (string, error) {
	w := p.next()
	if strings.HasPrefix(w, "`") {
		if len(w) < 3 || !strings.HasSuffix(w, "`") {
			return "", errors.New("a quoted name does not end")
		}
		return strings.ReplaceAll(w[1:len(w)-1], "``", "`"), nil
	}
	if r, _ := utf8.DecodeRuneInString(w); w == "" || r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
		return "", fmt.Errorf("expected a name, found %q", w)
	}
	return w, nil
}

func (f *Field) set(key, value string) {
	if f.Metadata == nil {
		f.Metadata = map[string]json.RawMessage{}
	}
	f.Metadata[key] = mustJSON(value)
}

// column reads a column of a table, or a field of a struct (where a colon may follow the name), and its limit.
func (p *ddl) column(depth int, field bool) (Field, *TextLimit, error) {
	fail := func(err error) (Field, *TextLimit, error) { return Field{}, nil, err }
	name, err := p.name()
	if err != nil {
		return fail(err)
	}
	if field {
		p.accept(":")
	}
	t, limit, err := p.typ(depth)
	if err != nil {
		return fail(err)
	}
	f := Field{Name: name, Type: t, Nullable: true}
	for {
		switch {
		case p.accept("NOT"):
			if err := p.expect("NULL"); err != nil {
				return fail(err)
			}
			f.Nullable = false
		case p.accept("NULL"):
		case p.accept("COMMENT"):
			w := p.next()
			if len(w) < 2 || w[0] != '\'' || w[len(w)-1] != '\'' {
				return fail(fmt.Errorf("COMMENT wants a quoted text, found %q", w))
			}
			f.set("comment", strings.ReplaceAll(w[1:len(w)-1], "''", "'"))
		default:
			switch w := strings.ToUpper(p.peek()); w {
			case "DEFAULT", "GENERATED", "PRIMARY", "CHECK", "CONSTRAINT", "MASK", "COLLATE":
				return fail(fmt.Errorf("%s: %w", w, ErrUnsupported))
			}
			return f, limit, nil
		}
	}
}

var sqlTypes = map[string]DataType{
	"STRING": String, "TEXT": String, "BIGINT": Long, "LONG": Long, "INT": Integer, "INTEGER": Integer, "SMALLINT": Short,
	"SHORT": Short, "TINYINT": Byte, "BYTE": Byte, "FLOAT": Float, "REAL": Float, "DOUBLE": Double, "BOOLEAN": Boolean,
	"BINARY": Binary, "DATE": Date, "TIMESTAMP": Timestamp, "TIMESTAMP_LTZ": Timestamp, "TIMESTAMP_NTZ": TimestampNTZ,
	"VARIANT": Variant, "VOID": Void,
}

// typ reads a type. VARCHAR and CHAR are STRING, with a limit beside it.
func (p *ddl) typ(depth int) (DataType, *TextLimit, error) {
	fail := func(err error) (DataType, *TextLimit, error) { return nil, nil, err }
	if depth > maxTypeDepth {
		return fail(errors.New("types are nested too deeply"))
	}
	word := p.next()
	if t, ok := sqlTypes[strings.ToUpper(word)]; ok {
		return t, nil, nil
	}
	switch strings.ToUpper(word) {
	case "DECIMAL", "NUMERIC", "DEC":
		d := Decimal{10, 0}
		if args, err := p.numbers(2); err != nil {
			return fail(err)
		} else if len(args) > 0 {
			d = Decimal{Precision: args[0]}
			if len(args) > 1 {
				d.Scale = args[1]
			}
		}
		return d, nil, d.validate()
	case "VARCHAR", "CHAR", "CHARACTER":
		args, err := p.numbers(1)
		if err != nil {
			return fail(err)
		}
		if len(args) != 1 {
			return fail(fmt.Errorf("%s wants a length", strings.ToUpper(word)))
		}
		name := strings.Replace(strings.ToLower(word), "character", "char", 1)
		return String, &TextLimit{Type: fmt.Sprintf("%s(%d)", name, args[0]), Max: args[0]}, nil
	case "ARRAY":
		if err := p.expect("<"); err != nil {
			return fail(err)
		}
		e, limit, err := p.typ(depth + 1)
		if err != nil {
			return fail(err)
		}
		return Array{e, true}, nestedLimit(limit), p.expect(">")
	case "MAP":
		if err := p.expect("<"); err != nil {
			return fail(err)
		}
		k, keyLimit, err := p.typ(depth + 1)
		if err != nil {
			return fail(err)
		}
		if err := p.expect(","); err != nil {
			return fail(err)
		}
		v, valueLimit, err := p.typ(depth + 1)
		if err != nil {
			return fail(err)
		}
		return Map{k, v, true}, nestedLimit(keyLimit, valueLimit), p.expect(">")
	case "STRUCT":
		return p.fields(depth)
	case "":
		return fail(errors.New("a type is missing"))
	}
	return fail(fmt.Errorf("unknown type %q", word))
}

func (p *ddl) fields(depth int) (DataType, *TextLimit, error) {
	var s Struct
	var limits []*TextLimit
	fail := func(err error) (DataType, *TextLimit, error) { return nil, nil, err }
	if err := p.expect("<"); err != nil {
		return fail(err)
	}
	for !p.accept(">") {
		if len(s.Fields) > 0 {
			if err := p.expect(","); err != nil {
				return fail(err)
			}
		}
		f, limit, err := p.column(depth+1, true)
		if err != nil {
			return fail(err)
		}
		s.Fields, limits = append(s.Fields, f), append(limits, limit)
	}
	if len(s.Fields) == 0 {
		return fail(errors.New("a struct needs a field"))
	}
	return s, nestedLimit(limits...), nil
}

// numbers reads "(n)" or "(n, m)", if it is there.
func (p *ddl) numbers(most int) ([]int, error) {
	if !p.accept("(") {
		return nil, nil
	}
	var out []int
	for {
		n, err := strconv.Atoi(p.next())
		if err != nil || n < 0 {
			return nil, errors.New("expected a number")
		}
		out = append(out, n)
		if p.accept(")") {
			break
		}
		if err := p.expect(","); err != nil {
			return nil, err
		}
	}
	if len(out) > most {
		return nil, fmt.Errorf("at most %d numbers are allowed", most)
	}
	return out, nil
}
