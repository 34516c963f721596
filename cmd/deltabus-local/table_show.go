package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

type columnJSON struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Nullable bool   `json:"nullable"`
}

type describeJSON struct {
	Name             string            `json:"name"`
	Location         string            `json:"location"`
	ID               string            `json:"id"`
	Version          int64             `json:"version"`
	Timestamp        string            `json:"timestamp"`
	Columns          []columnJSON      `json:"columns"`
	PartitionColumns []string          `json:"partition_columns"`
	Properties       map[string]string `json:"properties"`
	ReaderVersion    int               `json:"min_reader_version"`
	WriterVersion    int               `json:"min_writer_version"`
	Features         []string          `json:"features"`
	NumFiles         int               `json:"num_files"`
	SizeInBytes      int64             `json:"size_in_bytes"`
}

func (a *app) showTable(ctx context.Context, arg string) error {
	t, err := a.openTable(ctx, arg)
	if err != nil {
		return err
	}
	s := t.Cached()
	d := describeJSON{
		Name: arg, Location: strings.TrimSuffix(t.Store().URL(""), "/"), ID: s.Metadata().ID, Version: s.Version(), Timestamp: stamp(s.Timestamp()),
		Columns: []columnJSON{}, PartitionColumns: s.Metadata().PartitionColumns, Properties: s.Metadata().Configuration,
		ReaderVersion: s.Protocol().MinReaderVersion, WriterVersion: s.Protocol().MinWriterVersion,
		Features: append([]string{}, s.Protocol().WriterFeatures...), NumFiles: s.NumFiles(), SizeInBytes: s.Size(),
	}
	lines := [][2]string{
		{"name", arg},
		{"location", d.Location},
		{"id", d.ID},
		{"version", fmt.Sprintf("%d (%s)", d.Version, d.Timestamp)},
		{"protocol", fmt.Sprintf("(%d,%d) %s", d.ReaderVersion, d.WriterVersion, strings.Join(d.Features, ", "))},
		{"files", fmt.Sprintf("%d (%d bytes)", d.NumFiles, d.SizeInBytes)},
	}
	if len(d.PartitionColumns) > 0 {
		lines = append(lines, [2]string{"partitioned by", strings.Join(d.PartitionColumns, ", ")})
	}
	for _, k := range sortedKeys(d.Properties) {
		lines = append(lines, [2]string{"property", k + "=" + d.Properties[k]})
	}
	for _, f := range s.Schema().Fields {
		d.Columns = append(d.Columns, columnJSON{f.Name, f.Type.SQL(), f.Nullable})
		null := ""
		if !f.Nullable {
			null = " not null"
		}
		lines = append(lines, [2]string{"column", f.Name + " " + f.Type.SQL() + null})
	}
	return a.printOne(d, lines...)
}

func (a *app) tableShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show TABLE",
		Short: "Show a table's columns, properties, version and location",
		Args:  cobra.ExactArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return a.showTable(cmd.Context(), args[0]) },
	}
}
