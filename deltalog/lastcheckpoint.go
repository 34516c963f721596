package deltalog

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

const lastCheckpointName = logDir + "_last_checkpoint"

// lastCheckpoint is the content of _last_checkpoint: a hint, never the truth.
type lastCheckpoint struct {
	Version       int64  `json:"version"`
	Size          int64  `json:"size"`
	SizeInBytes   int64  `json:"sizeInBytes"`
	NumOfAddFiles int64  `json:"numOfAddFiles"`
	Checksum      string `json:"checksum,omitempty"`
}

// readLastCheckpoint returns the checkpoint that the hint names, if there is a usable one. Whether it is there is not looked at.
func (t *Table) readLastCheckpoint(ctx context.Context) (checkpointFiles, bool) {
	data, err := t.st.Get(ctx, lastCheckpointName)
	if err != nil {
		return checkpointFiles{}, false
	}
	var hint struct {
		Version *int64 `json:"version"`
		Parts   *int64 `json:"parts"`
		V2      *struct {
			Path string `json:"path"`
		} `json:"v2Checkpoint"`
	}
	if json.Unmarshal(data, &hint) != nil || hint.Version == nil || *hint.Version < 0 {
		return checkpointFiles{}, false
	}
	c := classic(*hint.Version)
	switch {
	case hint.V2 != nil:
		name := logDir + path.Base(hint.V2.Path)
		if f := parseLogName(name); f.version != c.version || f.kind != classicCheckpoint && f.kind != uuidCheckpoint {
			return checkpointFiles{}, false
		}
		c = checkpointFiles{c.version, parseLogName(name).kind, []string{name}}
	case hint.Parts != nil && (*hint.Parts < 1 || *hint.Parts > maxHintedParts):
		return checkpointFiles{}, false
	case hint.Parts != nil:
		c = multiPart(c.version, int(*hint.Parts))
	}
	t.lastCheckpoint.CompareAndSwap(0, c.version)
	return c, true
}

// maxHintedParts bounds how many parts a hint, which may say anything, is believed to have.
const maxHintedParts = 1 << 16

// writeLastCheckpoint writes the hint, unless there is one for a later version.
func (t *Table) writeLastCheckpoint(ctx context.Context, l lastCheckpoint) error {
	data, err := t.st.Get(ctx, lastCheckpointName)
	if err == nil {
		var old lastCheckpoint
		if json.Unmarshal(data, &old) == nil && old.Version > l.Version {
			return nil
		}
	} else if !errors.Is(err, store.ErrNotExist) {
		return err
	}
	l.Checksum = ""
	if data, err = json.Marshal(l); err != nil {
		return err
	}
	if l.Checksum, err = checksum(data); err != nil {
		return err
	}
	if data, err = json.Marshal(l); err != nil {
		return err
	}
	return t.put(ctx, lastCheckpointName, data, store.PutOptions{NoDirs: true})
}

// checksum is the MD5 of the canonical form of a JSON object: its leaves as "key"+"key"=value, sorted, joined by commas, with
// strings percent-encoded, and without a top-level checksum (delta.md 2.7).
func checksum(data []byte) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		return "", fmt.Errorf("checksum: %w", err)
	}
	delete(v, "checksum")
	var leaves []string
	flatten("", v, &leaves)
	slices.Sort(leaves)
	sum := md5.Sum([]byte(strings.Join(leaves, ",")))
	return hex.EncodeToString(sum[:]), nil
}

func flatten(prefix string, v any, out *[]string) {
	join := func(key string) string {
		if prefix == "" {
			return key
		}
		return prefix + "+" + key
	}
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			flatten(join(`"`+percent(k)+`"`), x, out)
		}
	case []any:
		for i, x := range v {
			flatten(join(strconv.Itoa(i)), x, out)
		}
	case string:
		*out = append(*out, prefix+`="`+percent(v)+`"`)
	default:
		*out = append(*out, prefix+"="+fmt.Sprint(jsonScalar(v)))
	}
}

func jsonScalar(v any) any {
	if v == nil {
		return "null"
	}
	return v
}

// percent encodes all but letters, digits and -._~.
func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
