package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/cdf"
	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/deltalog/verify"
	"github.com/deltabus/deltabus-local/internal/databricks"
)

func (a *app) tableCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "table",
		Short: "Look at Delta tables, and make them",
		Long:  "Each verb takes catalog.schema.table, or the path of any Delta table on disk; a server need not run.",
		RunE: func(_ *cobra.Command, _ []string) error {
			return usagef("table needs a verb: list, create, show, history, rows, changes, files or verify")
		},
		Args: cobra.ArbitraryArgs,
	}
	c.AddCommand(a.tableList(), a.tableCreate(), a.tableShow(), a.tableHistory(), a.tableRows(), a.tableChanges(), a.tableFiles(), a.tableVerify())
	return c
}

// isPath reports whether an argument is a path: it has a separator, or is a directory.
func isPath(arg string) bool {
	if strings.ContainsAny(arg, `/\`) || strings.HasPrefix(arg, "file:") {
		return true
	}
	st, err := os.Stat(arg)
	return err == nil && st.IsDir()
}

// storeOf finds where a table is, by name or path.
func (a *app) storeOf(ctx context.Context, arg string) (store.Store, error) {
	if isPath(arg) {
		if !strings.HasPrefix(arg, "file:") {
			if _, err := os.Stat(arg); err != nil { // opening a store would make the directory
				return nil, fmt.Errorf("%w: %w", deltalog.ErrNotTable, err)
			}
		}
		return deltabus.OpenLocation(arg)
	}
	if strings.Count(arg, ".") != 2 {
		return nil, usagef("table %q: write it as catalog.schema.table, or give a path", arg)
	}
	t, err := a.target(ctx, false)
	if err != nil {
		return nil, err
	}
	open, err := t.workspace.Table(ctx, arg)
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return open.Store(), t.close()
}

// openTable opens a table by name or path.
func (a *app) openTable(ctx context.Context, arg string) (*deltalog.Table, error) {
	st, err := a.storeOf(ctx, arg)
	if err != nil {
		return nil, err
	}
	return deltalog.Open(ctx, st, deltalog.Options{CheckpointInterval: -1})
}

type tableJSON struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Location string `json:"location"`
}

func (a *app) tableList() *cobra.Command {
	return &cobra.Command{
		Use:   "list [CATALOG[.SCHEMA]]",
		Short: "List the tables of the workspace",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			catalog, schema := "", ""
			if len(args) == 1 {
				catalog, schema, _ = strings.Cut(args[0], ".")
			}
			target, err := a.target(cmd.Context(), false)
			if err != nil {
				return err
			}
			t := a.table("NAME", "TYPE", "LOCATION")
			if target.dir != nil {
				all, err := target.dir.List(cmd.Context(), catalog, schema)
				if err != nil {
					return errors.Join(err, target.close())
				}
				for _, i := range all {
					t.row(tableJSON{i.FullName, i.Type, i.Location}, i.FullName, i.Type, i.Location)
				}
				return errors.Join(t.flush(), target.close())
			}
			client := databricks.Catalog{Host: target.host, Token: target.token}
			all, err := client.Tables(cmd.Context(), catalog, schema)
			if err != nil {
				return err
			}
			for _, i := range all {
				t.row(tableJSON{i.FullName, i.TableType, i.StorageLocation}, i.FullName, i.TableType, i.StorageLocation)
			}
			return t.flush()
		},
	}
}

func (a *app) tableCreate() *cobra.Command {
	var columns, partition, properties []string
	var cdfOn bool
	var comment string
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a managed table",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := deltalog.TableSpec{Description: comment, PartitionColumns: partition, Configuration: map[string]string{}}
			if len(columns) == 0 {
				return usagef("a table needs --column, like --column \"id BIGINT NOT NULL\"")
			}
			for _, d := range columns {
				f, err := deltalog.ParseColumn(d)
				if err != nil {
					return usagef("--column: %w", err)
				}
				spec.Schema.Fields = append(spec.Schema.Fields, f)
			}
			for _, p := range properties {
				k, v, ok := strings.Cut(p, "=")
				if !ok {
					return usagef("--property %q: write it as key=value", p)
				}
				spec.Configuration[k] = v
			}
			if cdfOn {
				spec.Configuration["delta.enableChangeDataFeed"] = "true"
			}
			t, err := a.target(cmd.Context(), true)
			if err != nil {
				return err
			}
			if _, err := t.workspace.CreateTable(cmd.Context(), args[0], spec); err != nil {
				return errors.Join(err, t.close())
			}
			return errors.Join(t.close(), a.showTable(cmd.Context(), args[0]))
		},
	}
	fl := c.Flags()
	fl.StringArrayVar(&columns, "column", nil, "column definition like \"id BIGINT NOT NULL\"; once for each column")
	fl.StringSliceVar(&partition, "partition-by", nil, "partition columns")
	fl.StringArrayVar(&properties, "property", nil, "table property as key=value")
	fl.BoolVar(&cdfOn, "cdf", false, "enable the change data feed")
	fl.StringVar(&comment, "comment", "", "what the table is for")
	return c
}

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

func (a *app) tableHistory() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "history TABLE",
		Short: "List the versions of a table, newest first",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			out := a.table("VERSION", "TIMESTAMP", "OPERATION", "ADDED", "REMOVED", "ENGINE")
			n := 0
			for c, err := range t.History(cmd.Context()) {
				if err != nil {
					return err
				}
				if n++; limit > 0 && n > limit {
					break
				}
				added, removed := 0, 0
				for _, act := range c.Actions {
					if act.Add != nil {
						added++
					} else if act.Remove != nil {
						removed++
					}
				}
				info := c.Info()
				out.row(map[string]any{
					"version": c.Version, "timestamp": stamp(c.Timestamp), "operation": info.String("operation"),
					"files_added": added, "files_removed": removed, "engine": info.String("engineInfo"), "commit_info": info,
				}, strconv.FormatInt(c.Version, 10), stamp(c.Timestamp), orDash(info.String("operation")), strconv.Itoa(added), strconv.Itoa(removed), orDash(info.String("engineInfo")))
			}
			return out.flush()
		},
	}
	c.Flags().IntVar(&limit, "limit", 0, "most versions to list (default: all)")
	return c
}

func (a *app) tableRows() *cobra.Command {
	var version int64
	c := &cobra.Command{
		Use:   "rows TABLE",
		Short: "Print the rows of a table as JSON",
		Long:  "Print each row as one JSON line (an array with -o json): times as ISO 8601, binary as base64, decimals as exact strings.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			s := t.Cached()
			if version >= 0 {
				if s, err = t.SnapshotAt(cmd.Context(), version); err != nil {
					return err
				}
			}
			rows := a.jsonRows()
			for rec, err := range t.Scan(cmd.Context(), s, nil, nil) {
				if err != nil {
					return err
				}
				if err := a.printBatch(rows, rec, ""); err != nil {
					return err
				}
			}
			return rows.end()
		},
	}
	c.Flags().Int64Var(&version, "version", -1, "version to read (default: the newest)")
	return c
}

// printBatch prints the rows of a batch; more is what else goes into each object.
func (a *app) printBatch(rows *jsonRows, rec arrow.RecordBatch, more string) error {
	var buf []byte
	for i := range int(rec.NumRows()) {
		var err error
		if buf, err = deltalog.AppendRowJSON(buf[:0], rec, i); err != nil {
			return err
		}
		if more != "" {
			buf = append(buf[:len(buf)-1], more...)
		}
		if err := rows.add(buf); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) tableChanges() *cobra.Command {
	var from, to int64
	c := &cobra.Command{
		Use:   "changes TABLE",
		Short: "Print the change data feed of a range of versions as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if from < 0 {
				return usagef("--from is required")
			}
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r := cdf.Range{StartVersion: &from}
			if to >= 0 {
				r.EndVersion = &to
			}
			rows := a.jsonRows()
			for b, err := range cdf.Read(cmd.Context(), t, r, nil) {
				if err != nil {
					return err
				}
				more := fmt.Sprintf(`,"_change_type":%q,"_commit_version":%d,"_commit_timestamp":%q}`, b.ChangeType, b.Version, stamp(b.Timestamp))
				if err := a.printBatch(rows, b.Rows, more); err != nil {
					return err
				}
			}
			return rows.end()
		},
	}
	c.Flags().Int64Var(&from, "from", -1, "first version (required)")
	c.Flags().Int64Var(&to, "to", -1, "last version (default: the newest)")
	return c
}

func (a *app) tableFiles() *cobra.Command {
	return &cobra.Command{
		Use:   "files TABLE",
		Short: "List the data files of the newest version",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			out := a.table("PATH", "ROWS", "BYTES")
			for f := range t.Cached().Files() {
				stats, err := deltalog.ParseStats(f.Stats)
				rows := "?"
				if err == nil && stats.NumRecords != nil {
					rows = strconv.FormatInt(*stats.NumRecords, 10)
				}
				var raw any
				if json.Unmarshal([]byte(f.Stats), &raw) != nil {
					raw = nil
				}
				out.row(map[string]any{
					"path": f.Path, "partition_values": f.PartitionValues, "size": f.Size, "num_records": stats.NumRecords, "stats": raw,
				}, f.Path, rows, strconv.FormatInt(f.Size, 10))
			}
			return out.flush()
		},
	}
}

func (a *app) tableVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify TABLE",
		Short: "Audit a table: its log, its files and their statistics",
		Long:  "Audit a table and exit with 1 if something is wrong. Files that no version names, as a crash leaves them, are reported, not failed.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.storeOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			report, err := verify.Verify(cmd.Context(), st)
			if err != nil {
				return err
			}
			lines := [][2]string{
				{"versions", fmt.Sprintf("%d to %d", report.FirstVersion, report.Version)},
				{"files", strconv.Itoa(report.Files)},
				{"rows", strconv.FormatInt(report.Rows, 10)},
				{"inserted", strconv.FormatInt(report.Inserted, 10)},
				{"checkpoints", strconv.Itoa(report.Checkpoints)},
			}
			for _, n := range report.Notes {
				lines = append(lines, [2]string{"note", n})
			}
			for _, p := range report.Problems {
				lines = append(lines, [2]string{"PROBLEM", p})
			}
			if err := a.printOne(report, lines...); err != nil {
				return err
			}
			if len(report.Problems) > 0 {
				return fmt.Errorf("table %s: %d problems", filepath.Base(args[0]), len(report.Problems))
			}
			return nil
		},
	}
}
