package zerobusfake

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/deltabus/deltabus-local/deltalog"
)

// maxDepth bounds nesting in records.
const maxDepth = 100

// jsonDecoder reads JSON records straight into columns, by the rules of zerobus.md 8.3 and 8.4: times as integers, unknown fields
// refused. It is lenient where the real service probably is: integers may be written as strings of digits, decimals as numbers.
type jsonDecoder struct {
	s   string
	pos int
}

// decode appends one record to r. After an error r holds part of it: the caller truncates.
func (d *jsonDecoder) decode(s string, r *rows) error {
	d.s, d.pos = s, 0
	d.space()
	if d.pos == len(s) || s[d.pos] != '{' {
		return d.fail(d.pos, "expected a JSON object")
	}
	if err := d.object(r.root, 0); err != nil {
		return err
	}
	d.space()
	if d.pos < len(s) {
		return d.fail(d.pos, "trailing characters")
	}
	return nil
}

// fail is an error at a position, which is said as line and column, both from 1.
func (d *jsonDecoder) fail(pos int, format string, args ...any) error {
	before := d.s[:min(pos, len(d.s))]
	line := strings.Count(before, "\n") + 1
	column := len(before) - (strings.LastIndexByte(before, '\n') + 1) + 1
	return badRecord(format+" at line %d column %d", append(args, line, column)...)
}

func (d *jsonDecoder) space() {
	for d.pos < len(d.s) {
		switch d.s[d.pos] {
		case ' ', '\t', '\n', '\r':
			d.pos++
		default:
			return
		}
	}
}

// next passes over white space and takes c.
func (d *jsonDecoder) take(c byte) bool {
	d.space()
	if d.pos < len(d.s) && d.s[d.pos] == c {
		d.pos++
		return true
	}
	return false
}

func (d *jsonDecoder) object(c *column, depth int) error {
	if depth > maxDepth {
		return d.fail(d.pos, "recursion limit exceeded")
	}
	d.pos++ // {
	c.object++
	expect := 0
	for first := true; !d.take('}'); first = false {
		if !first && !d.take(',') {
			return d.fail(d.pos, "expected `,` or `}`")
		}
		d.space()
		at := d.pos
		i := expect
		if i < len(c.kids) && c.kids[i].quoted != "" && strings.HasPrefix(d.s[at:], c.kids[i].quoted) { // records name their fields in the same order
			d.pos += len(c.kids[i].quoted)
		} else {
			key, err := d.key()
			if err != nil {
				return err
			}
			var ok bool
			if i, ok = c.index[key]; !ok {
				return d.fail(at, "unrecognized field name '%s'", brief(key, maxQuoted))
			}
		}
		expect = i + 1
		if c.seen[i] == c.object {
			return d.fail(at, "duplicate field '%s'", c.kids[i].name)
		}
		c.seen[i] = c.object
		if !d.take(':') {
			return d.fail(d.pos, "expected `:`")
		}
		if err := d.value(c.kids[i], depth+1); err != nil {
			return err
		}
	}
	for i, kid := range c.kids {
		if c.seen[i] == c.object {
			continue
		}
		if !kid.nullable {
			return badRecord("missing required field '%s'", kid.name)
		}
		kid.appendNull()
	}
	c.added()
	return nil
}

// key reads a string that names a field.
func (d *jsonDecoder) key() (string, error) {
	if d.pos == len(d.s) || d.s[d.pos] != '"' {
		return "", d.fail(d.pos, "expected a field name")
	}
	if end := strings.IndexByte(d.s[d.pos+1:], '"'); end >= 0 {
		if key := d.s[d.pos+1 : d.pos+1+end]; strings.IndexByte(key, '\\') < 0 {
			if !utf8.ValidString(key) {
				return "", d.fail(d.pos, "invalid UTF-8")
			}
			d.pos += end + 2
			return key, nil
		}
	}
	b, err := d.text(nil)
	return string(b), err
}

func (d *jsonDecoder) value(c *column, depth int) error {
	d.space()
	if d.pos == len(d.s) {
		return d.fail(d.pos, "unexpected end of the record")
	}
	at := d.pos
	if d.s[at] == 'n' {
		if !strings.HasPrefix(d.s[at:], "null") {
			return d.fail(at, "expected a value")
		}
		if !c.nullable {
			return d.fail(at, "null for required field '%s'", c.name)
		}
		d.pos += 4
		c.appendNull()
		return nil
	}
	switch t := c.t.(type) {
	case deltalog.Primitive:
		return d.primitive(c, t)
	case deltalog.Decimal:
		token, err := d.scalar()
		if err != nil {
			return err
		}
		lo, hi, ok := parseDecimal(token, t)
		if !ok {
			return d.fail(at, "invalid value for %s field '%s'", t.SQL(), c.name)
		}
		c.appendDecimal(lo, hi)
		return nil
	case deltalog.Array:
		return d.list(c, depth)
	case deltalog.Map:
		return d.dict(c, t, depth)
	}
	if d.s[at] != '{' {
		return d.fail(at, "expected an object for field '%s'", c.name)
	}
	return d.object(c, depth)
}

func (d *jsonDecoder) primitive(c *column, t deltalog.Primitive) error {
	at := d.pos
	switch t {
	case deltalog.String:
		if d.s[at] != '"' {
			return d.fail(at, "expected a string for field '%s'", c.name)
		}
		var err error
		if c.data, err = d.text(c.data); err != nil {
			return err
		}
		c.closeText()
		return nil
	case deltalog.Binary:
		if d.s[at] != '"' {
			return d.fail(at, "expected a base64 string for field '%s'", c.name)
		}
		text, err := d.text(nil)
		if err != nil {
			return err
		}
		if c.data, err = appendBase64(c.data, text); err != nil {
			return d.fail(at, "invalid base64 for field '%s'", c.name)
		}
		c.closeText()
		return nil
	case deltalog.Boolean:
		switch rest := d.s[at:]; {
		case strings.HasPrefix(rest, "true"):
			d.pos += 4
			c.appendBool(true)
		case strings.HasPrefix(rest, "false"):
			d.pos += 5
			c.appendBool(false)
		default:
			return d.fail(at, "expected a boolean for field '%s'", c.name)
		}
		return nil
	case deltalog.Float, deltalog.Double:
		return d.float(c, false)
	}
	token, err := d.scalar()
	if err != nil {
		return err
	}
	v, ok := parseInt(token)
	if !ok {
		return d.fail(at, "invalid digit found in string")
	}
	if !c.appendInt(v) {
		return d.fail(at, "number out of range for %s field '%s'", t.SQL(), c.name)
	}
	return nil
}

// parseInt is strconv.ParseInt for base 10, without its errors.
func parseInt(s string) (int64, bool) {
	if len(s) == 0 || len(s) > 18 {
		if strings.HasPrefix(s, "+") { // strconv takes it
			return 0, false
		}
		v, err := strconv.ParseInt(s, 10, 64)
		return v, err == nil
	}
	i, negative := 0, s[0] == '-'
	if negative {
		i = 1
	}
	if i == len(s) {
		return 0, false
	}
	var v int64
	for ; i < len(s); i++ {
		c := s[i] - '0'
		if c > 9 {
			return 0, false
		}
		v = v*10 + int64(c)
	}
	if negative {
		v = -v
	}
	return v, true
}

// float reads a number; quoted ones only where asQuoted, as the keys of a map are.
func (d *jsonDecoder) float(c *column, asQuoted bool) error {
	at := d.pos
	quoted := d.s[at] == '"'
	token, err := d.scalar()
	if err != nil {
		return err
	}
	bitSize := c.width * 8
	var v float64
	switch {
	case token == "NaN":
		v = math.NaN()
	case token == "Infinity":
		v = math.Inf(1)
	case token == "-Infinity":
		v = math.Inf(-1)
	case quoted && !asQuoted || !isNumber(token):
		return d.fail(at, "expected a number for field '%s'", c.name)
	default:
		if v, err = strconv.ParseFloat(token, bitSize); err != nil {
			return d.fail(at, "number out of range for %s field '%s'", c.t.SQL(), c.name)
		}
	}
	if bitSize == 32 {
		c.appendBits(uint64(math.Float32bits(float32(v))))
	} else {
		c.appendBits(math.Float64bits(v))
	}
	return nil
}

// isNumber reports whether s is a JSON number; strconv takes more.
func isNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	digits := func() bool {
		n := 0
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			n++
		}
		s = s[n:]
		return n > 0
	}
	if strings.HasPrefix(s, "0") {
		s = s[1:]
	} else if !digits() {
		return false
	}
	if strings.HasPrefix(s, ".") {
		s = s[1:]
		if !digits() {
			return false
		}
	}
	if s != "" && (s[0] == 'e' || s[0] == 'E') {
		if s = s[1:]; s != "" && (s[0] == '+' || s[0] == '-') {
			s = s[1:]
		}
		if !digits() {
			return false
		}
	}
	return s == ""
}

// scalar is the next number or word, or the content of a string without escapes.
func (d *jsonDecoder) scalar() (string, error) {
	at := d.pos
	if d.s[at] == '"' {
		end := strings.IndexByte(d.s[at+1:], '"')
		if end < 0 || strings.IndexByte(d.s[at+1:at+1+end], '\\') >= 0 {
			return "", d.fail(at, "invalid digit found in string")
		}
		d.pos = at + end + 2
		return d.s[at+1 : at+1+end], nil
	}
	for d.pos < len(d.s) {
		switch c := d.s[d.pos]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-', c == '+', c == '.':
			d.pos++
			continue
		}
		break
	}
	if d.pos == at {
		return "", d.fail(at, "invalid digit found in string")
	}
	return d.s[at:d.pos], nil
}

func (d *jsonDecoder) list(c *column, depth int) error {
	if depth > maxDepth {
		return d.fail(d.pos, "recursion limit exceeded")
	}
	if d.s[d.pos] != '[' {
		return d.fail(d.pos, "expected an array for field '%s'", c.name)
	}
	d.pos++
	for first := true; !d.take(']'); first = false {
		if !first && !d.take(',') {
			return d.fail(d.pos, "expected `,` or `]`")
		}
		if err := d.value(c.kids[0], depth+1); err != nil {
			return err
		}
	}
	c.closeList()
	return nil
}

// dict reads an object as a map: its keys are strings, read as the map's key type.
func (d *jsonDecoder) dict(c *column, t deltalog.Map, depth int) error {
	if depth > maxDepth {
		return d.fail(d.pos, "recursion limit exceeded")
	}
	if d.s[d.pos] != '{' {
		return d.fail(d.pos, "expected an object for map field '%s'", c.name)
	}
	at := d.pos
	d.pos++
	start := c.kids[0].n
	for first := true; !d.take('}'); first = false {
		if !first && !d.take(',') {
			return d.fail(d.pos, "expected `,` or `}`")
		}
		d.space()
		if d.pos == len(d.s) || d.s[d.pos] != '"' {
			return d.fail(d.pos, "expected a key of map field '%s'", c.name)
		}
		if err := d.mapKey(c.kids[0], t.Key); err != nil {
			return err
		}
		if !d.take(':') {
			return d.fail(d.pos, "expected `:`")
		}
		if err := d.value(c.kids[1], depth+1); err != nil {
			return err
		}
	}
	if c.kids[0].repeats(start) {
		return d.fail(at, "duplicate key in map field '%s'", c.name)
	}
	c.closeList()
	return nil
}

func (d *jsonDecoder) mapKey(c *column, t deltalog.DataType) error {
	at := d.pos
	if t == deltalog.Boolean {
		switch token, err := d.scalar(); {
		case err != nil:
			return err
		case token == "true" || token == "false":
			c.appendBool(token == "true")
			return nil
		}
		return d.fail(at, "expected a boolean key")
	}
	switch t := t.(type) {
	case deltalog.Primitive:
		if t == deltalog.Float || t == deltalog.Double {
			return d.float(c, true)
		}
		return d.primitive(c, t)
	case deltalog.Decimal:
		token, err := d.scalar()
		if err != nil {
			return err
		}
		lo, hi, ok := parseDecimal(token, t)
		if !ok {
			return d.fail(at, "invalid value for %s key", t.SQL())
		}
		c.appendDecimal(lo, hi)
		return nil
	}
	return d.fail(at, "a key of type %s cannot be written in JSON", t.SQL())
}

// text appends the content of the string at pos to dst.
func (d *jsonDecoder) text(dst []byte) ([]byte, error) {
	at := d.pos
	d.pos++
	ascii := true
	begin := len(dst)
	for {
		start := d.pos
		for {
			d.pos += plain(d.s[d.pos:])
			if d.pos == len(d.s) || d.s[d.pos] < utf8.RuneSelf {
				break
			}
			ascii = false
			d.pos++
		}
		dst = append(room(dst, d.pos-start), d.s[start:d.pos]...)
		if d.pos == len(d.s) {
			return dst, d.fail(at, "a string does not end")
		}
		switch d.s[d.pos] {
		case '"':
			d.pos++
			if !ascii && !utf8.Valid(dst[begin:]) {
				return dst, d.fail(at, "invalid UTF-8")
			}
			return dst, nil
		case '\\':
			var err error
			if dst, err = d.escape(dst); err != nil {
				return dst, err
			}
		default:
			return dst, d.fail(d.pos, "control character in a string")
		}
	}
}

// plain is the length of the beginning of s that a string may have as it is: no quote, no backslash, no control character, and no byte
// beyond ASCII. It looks at eight bytes at once.
func plain(s string) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	n := 0
	for b := unsafe.Slice(unsafe.StringData(s), len(s)); n+8 <= len(b); n += 8 {
		x := binary.LittleEndian.Uint64(b[n:])
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		if (x|(x-ones*0x20)|(quote-ones)&^quote|(slash-ones)&^slash)&highs != 0 {
			break
		}
	}
	for n < len(s) && s[n] >= 0x20 && s[n] < utf8.RuneSelf && s[n] != '"' && s[n] != '\\' {
		n++
	}
	return n
}

var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (d *jsonDecoder) escape(dst []byte) ([]byte, error) {
	at := d.pos
	d.pos++
	if d.pos == len(d.s) {
		return dst, d.fail(at, "a string does not end")
	}
	c := d.s[d.pos]
	d.pos++
	if c != 'u' {
		if e, ok := escapes[c]; ok {
			return append(dst, e), nil
		}
		return dst, d.fail(at, "invalid escape")
	}
	r, ok := d.hex4()
	if !ok {
		return dst, d.fail(at, "invalid escape")
	}
	if utf16.IsSurrogate(r) {
		low := rune(0)
		if strings.HasPrefix(d.s[d.pos:], `\u`) {
			d.pos += 2
			if low, ok = d.hex4(); !ok {
				return dst, d.fail(at, "invalid escape")
			}
		}
		if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
			return dst, d.fail(at, "lone surrogate in a string")
		}
	}
	return utf8.AppendRune(dst, r), nil
}

func (d *jsonDecoder) hex4() (rune, bool) {
	if len(d.s)-d.pos < 4 {
		return 0, false
	}
	v, err := strconv.ParseUint(d.s[d.pos:d.pos+4], 16, 16)
	d.pos += 4
	return rune(v), err == nil
}

// appendBase64 decodes both alphabets, with padding or without, as protojson does.
func appendBase64(dst, text []byte) ([]byte, error) {
	enc := base64.RawStdEncoding
	s := strings.TrimRight(string(text), "=")
	if strings.ContainsAny(s, "-_") {
		enc = base64.RawURLEncoding
	}
	return enc.AppendDecode(dst, []byte(s))
}
