package emulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/internal/catalog"
)

// Seed is what a new workspace begins with, as a YAML file says it. The schemas of tables need not be named.
type Seed struct {
	Catalogs []string    `yaml:"catalogs"`
	Schemas  []string    `yaml:"schemas"`
	Tables   []SeedTable `yaml:"tables"`
	// Buses are schemas (catalog.schema) that are to have a bus. The emulator only carries them: it knows no bus.
	Buses []string `yaml:"buses"`
}

// SeedTable is a table of a seed.
type SeedTable struct {
	Name        string       `yaml:"name"`
	Columns     []SeedColumn `yaml:"columns"`
	PartitionBy []string     `yaml:"partition_by"`
	// CDF is the change data feed: the property delta.enableChangeDataFeed.
	CDF        bool              `yaml:"cdf"`
	Comment    string            `yaml:"comment"`
	Properties map[string]string `yaml:"properties"`
}

// SeedColumn is a column: in YAML a definition like "id BIGINT NOT NULL", or a mapping with name, type, nullable (default true)
// and comment.
type SeedColumn struct{ deltalog.Field }

// UnmarshalYAML reads either form.
func (c *SeedColumn) UnmarshalYAML(unmarshal func(any) error) error {
	var text string
	if unmarshal(&text) == nil {
		var err error
		c.Field, err = deltalog.ParseColumn(text)
		return err
	}
	var m struct {
		Name, Type, Comment string
		Nullable            *bool
	}
	if err := unmarshal(&m); err != nil {
		return err
	}
	c.Field = deltalog.Field{Name: m.Name, Nullable: m.Nullable == nil || *m.Nullable}
	if err := c.SetType(m.Type); err != nil {
		return fmt.Errorf("column %q: %w", m.Name, err)
	}
	if m.Name == "" {
		return errors.New("a column needs a name")
	}
	if m.Comment != "" {
		text, err := json.Marshal(m.Comment)
		if err != nil {
			return err
		}
		if c.Metadata == nil {
			c.Metadata = map[string]json.RawMessage{}
		}
		c.Metadata["comment"] = text
	}
	return nil
}

// ParseSeed reads a seed, and checks all that can be checked without a workspace. Unknown keys are errors that name their line.
func ParseSeed(data []byte) (*Seed, error) {
	var s Seed
	err := yaml.UnmarshalWithOptions(data, &s, yaml.Strict())
	if errors.Is(err, io.EOF) { // an empty file, or one of comments
		return &s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("seed: %s", strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	for _, list := range []struct {
		names []string
		parts int
	}{{s.Catalogs, 1}, {s.Schemas, 2}, {s.Buses, 2}} {
		for _, n := range list.names {
			if _, err := catalog.ParseName(n, list.parts); err != nil {
				return nil, fmt.Errorf("seed: %w", err)
			}
		}
	}
	for i, t := range s.Tables {
		if _, err := t.spec(); err != nil {
			return nil, fmt.Errorf("seed: table %d (%s): %w", i+1, t.Name, err)
		}
	}
	return &s, nil
}

func (t SeedTable) spec() (deltalog.TableSpec, error) {
	spec := deltalog.TableSpec{Description: t.Comment, PartitionColumns: t.PartitionBy, Configuration: maps.Clone(t.Properties)}
	if t.CDF {
		if spec.Configuration == nil {
			spec.Configuration = map[string]string{}
		}
		spec.Configuration["delta.enableChangeDataFeed"] = "true"
	}
	for _, c := range t.Columns {
		spec.Schema.Fields = append(spec.Schema.Fields, c.Field)
	}
	if len(t.Columns) == 0 {
		return spec, errors.New("a table needs columns")
	}
	_, err := catalog.ParseName(t.Name, 3)
	return spec, err
}

// seed makes what s names; what is there already must be the same.
func (w *Workspace) seed(ctx context.Context, s *Seed) error {
	for _, c := range s.Catalogs {
		if err := w.catalog.CreateCatalog(ctx, c, ""); err != nil && !errors.Is(err, catalog.ErrExists) {
			return fmt.Errorf("seed: %w", err)
		}
	}
	for _, full := range s.Schemas {
		if err := w.CreateSchema(ctx, full, ""); err != nil && !errors.Is(err, catalog.ErrExists) {
			return fmt.Errorf("seed: %w", err)
		}
	}
	for _, st := range s.Tables {
		spec, err := st.spec()
		if err != nil {
			return fmt.Errorf("seed: table %s: %w", st.Name, err)
		}
		_, err = w.CreateTable(ctx, st.Name, spec)
		if errors.Is(err, deltalog.ErrTableExists) {
			var t *deltalog.Table
			if t, err = w.Table(ctx, st.Name); err == nil {
				if differs := agrees(t.Cached(), spec); differs != nil {
					err = fmt.Errorf("table %s is there already, with %w: change the seed, or drop the table", st.Name, differs)
				}
			}
		}
		if err != nil {
			return fmt.Errorf("seed: %w", err)
		}
	}
	return nil
}
