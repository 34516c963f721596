package emulator

import (
	"context"
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/internal/catalog"
)

// Seed is what a new workspace begins with, as a YAML file says it.
type Seed struct {
	Catalogs []string    `yaml:"catalogs"`
	Schemas  []string    `yaml:"schemas"`
	Tables   []SeedTable `yaml:"tables"`
	// Buses are schemas (catalog.schema) that are to have a bus. The emulator only carries them: it knows no bus.
	Buses []string `yaml:"buses"`
}

// SeedTable is a table of a seed.
type SeedTable struct {
	Name string `yaml:"name"`
	// Columns are definitions like "id BIGINT NOT NULL".
	Columns     []string          `yaml:"columns"`
	PartitionBy []string          `yaml:"partition_by"`
	CDF         bool              `yaml:"cdf"`
	Comment     string            `yaml:"comment"`
	Properties  map[string]string `yaml:"properties"`
}

// ParseSeed reads a seed. Unknown keys are errors that name their line.
func ParseSeed(data []byte) (*Seed, error) {
	var s Seed
	if err := yaml.UnmarshalWithOptions(data, &s, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("seed: %s", yaml.FormatError(err, false, true))
	}
	for i, t := range s.Tables {
		if _, err := t.spec(); err != nil {
			return nil, fmt.Errorf("seed: table %d (%s): %w", i+1, t.Name, err)
		}
	}
	return &s, nil
}

func (t SeedTable) spec() (deltalog.TableSpec, error) {
	spec := deltalog.TableSpec{Description: t.Comment, PartitionColumns: t.PartitionBy, Configuration: map[string]string{}}
	for k, v := range t.Properties {
		spec.Configuration[k] = v
	}
	if t.CDF {
		spec.Configuration["delta.enableChangeDataFeed"] = "true"
	}
	for _, c := range t.Columns {
		f, err := deltalog.ParseColumn(c)
		if err != nil {
			return spec, err
		}
		spec.Schema.Fields = append(spec.Schema.Fields, f)
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
		n, err := catalog.ParseName(full, 2)
		if err == nil {
			err = w.catalog.CreateSchema(ctx, n[0], n[1], "")
		}
		if err != nil && !errors.Is(err, catalog.ErrExists) {
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
			if t, err = w.Table(ctx, st.Name); err == nil && t.Cached().Schema().SQL() != spec.Schema.SQL() {
				err = fmt.Errorf("table %s is there with other columns (%s): change the seed, or drop the table", st.Name, t.Cached().Schema().SQL())
			}
		}
		if err != nil {
			return fmt.Errorf("seed: %w", err)
		}
	}
	return nil
}
