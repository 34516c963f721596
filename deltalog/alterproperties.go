package deltalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// featurePrefix begins properties that switch on a table feature and are not kept.
const featurePrefix = "delta.feature."

// SetProperties sets table properties; "comment" is the table's description, and "delta.feature.X" with the value "supported" adds a feature. Those
// whose features this package does not write are refused (ErrUnsupported). Switching the change data feed on upgrades the protocol if it has to, and
// is refused where columns have the feed's names; changes are recorded from the next version on.
func (t *Table) SetProperties(ctx context.Context, properties map[string]string) (*Commit, error) {
	return t.alter(ctx, "SET TBLPROPERTIES", func(a *alteration) (map[string]any, error) {
		if len(properties) == 0 {
			return nil, errors.New("no property is given")
		}
		for _, key := range slices.Sorted(maps.Keys(properties)) {
			if err := a.setProperty(key, properties[key]); err != nil {
				return nil, fmt.Errorf("property %s: %w", key, err)
			}
		}
		if a.metadata.flag(propChangeDataFeed, false) && !feedEnabled(a.protocol, a.metadata) {
			if err := a.enable("changeDataFeed"); err != nil {
				return nil, err
			}
		}
		return map[string]any{"properties": string(mustJSON(properties))}, nil
	})
}

func (a *alteration) setProperty(key, value string) error {
	switch key {
	case "":
		return errors.New("it has no name")
	case "comment":
		a.metadata.Description = value
		return nil
	case "delta.minReaderVersion", "delta.minWriterVersion":
		return fmt.Errorf("%w: name the feature instead (%sX = supported)", ErrUnsupported, featurePrefix)
	case propChangeDataFeed, propAppendOnly:
		if !strings.EqualFold(value, "true") && !strings.EqualFold(value, "false") {
			return fmt.Errorf("%q is neither true nor false", value)
		}
	}
	if feature, ok := strings.CutPrefix(key, featurePrefix); ok {
		if value != "supported" && value != "enabled" {
			return fmt.Errorf("the value of a feature is supported, not %q", value)
		}
		return a.enable(feature)
	}
	a.metadata.Configuration[key] = value
	return nil
}

// UnsetProperties takes table properties away. One that is not set is an error, unless ifExists.
func (t *Table) UnsetProperties(ctx context.Context, keys []string, ifExists bool) (*Commit, error) {
	return t.alter(ctx, "UNSET TBLPROPERTIES", func(a *alteration) (map[string]any, error) {
		if len(keys) == 0 {
			return nil, errors.New("no property is given")
		}
		for _, key := range keys {
			_, there := a.metadata.Configuration[key]
			switch {
			case key == "comment":
				a.metadata.Description = ""
			case there:
				delete(a.metadata.Configuration, key)
			case !ifExists:
				return nil, NewClassError("DELTA_UNSET_NON_EXISTENT_PROPERTY", nil, "property %s is not set; give IF EXISTS to pass over it", key)
			}
		}
		return map[string]any{"properties": string(mustJSON(keys)), "ifExists": ifExists}, nil
	})
}

// legacyFeatures are the features that a writer version before 7 stands for, each with the first version that does.
var legacyFeatures = []struct {
	name  string
	since int
}{{"appendOnly", 2}, {"invariants", 2}, {"checkConstraints", 3}, {"changeDataFeed", 4}, {"generatedColumns", 4}}

// enable adds a feature to the protocol, which it upgrades only as far as it has to.
func (a *alteration) enable(feature string) error {
	if !slices.Contains(writableFeatures, feature) {
		return NewClassError("DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", ErrUnsupported, "%s", feature)
	}
	p := *a.protocol
	readers := slices.Contains([]string{"timestampNtz"}, feature)
	switch {
	case slices.Contains(p.WriterFeatures, feature):
		return nil
	case p.MinWriterVersion < 7 && feature == "changeDataFeed": // every writer that knows it knows version 4
		p.MinWriterVersion = max(p.MinWriterVersion, 4)
	default:
		features := slices.Clone(p.WriterFeatures)
		for _, f := range legacyFeatures {
			if p.MinWriterVersion < 7 && p.MinWriterVersion >= f.since && f.name != feature {
				features = append(features, f.name)
			}
		}
		p.MinWriterVersion, p.WriterFeatures = 7, append(features, feature)
		if readers {
			p.MinReaderVersion, p.ReaderFeatures = 3, append(slices.Clone(p.ReaderFeatures), feature)
		}
	}
	a.protocol, a.upgraded = &p, true
	return nil
}
