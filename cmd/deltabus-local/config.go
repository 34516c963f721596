package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const defaultConfig = "deltabus-local.yaml"

// alsoEnv are variables of databricks clients that count where ours is not set.
var alsoEnv = map[string]string{"host": "DATABRICKS_HOST", "token": "DATABRICKS_TOKEN"}

// envName is the variable of a flag: DELTABUS_DATA_DIR for --data-dir.
func envName(flag string) string {
	return "DELTABUS_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// resolve gives every flag of cmd that the command line does not have its value: from the environment, else from the file, else the
// default; and notes where each came from.
func (a *app) resolve(cmd *cobra.Command) error {
	file, err := a.readConfig(cmd)
	if err != nil {
		return err
	}
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if failed == nil {
			failed = a.resolveFlag(f, file)
		}
	})
	a.settleHost()
	return failed
}

// settleHost sets a host aside that counts less than the data directory: both say which workspace is meant.
func (a *app) settleHost() {
	if a.host != "" && weight(a.origins["data-dir"]) > weight(a.origins["host"]) {
		a.host = ""
		a.origins["host"] += ", set aside for --data-dir"
	}
}

// weight orders where settings come from.
func weight(origin string) int {
	kind, _, _ := strings.Cut(origin, " ")
	return slices.Index([]string{"default", "file", "environment", "flag"}, kind)
}

// refuse refuses flags that a verb would have to ignore. From the environment or the file they are for the other verbs.
func (a *app) refuse(why string, flags ...string) error {
	for _, f := range flags {
		if a.origins[f] == "flag" {
			return usagef("--%s is not for this verb: %s", f, why)
		}
	}
	return nil
}

func (a *app) resolveFlag(f *pflag.Flag, file map[string]string) error {
	a.origins[f.Name] = "default"
	if f.Changed {
		a.origins[f.Name] = "flag"
		return nil
	}
	if f.Name == "help" {
		return nil
	}
	// An empty variable counts as one that is not set: that is how a shell undoes an export for one command.
	for _, name := range []string{envName(f.Name), alsoEnv[f.Name]} {
		if v, ok := os.LookupEnv(name); name != "" && ok && v != "" {
			a.origins[f.Name] = "environment " + name
			if err := f.Value.Set(v); err != nil {
				return fmt.Errorf("%s=%q: %w", name, v, err)
			}
			return nil
		}
	}
	if v, ok := file[f.Name]; ok && f.Name != "config" {
		a.origins[f.Name] = "file " + a.configFile
		if err := f.Value.Set(v); err != nil {
			return fmt.Errorf("%s: %s: %q: %w", a.configFile, f.Name, v, err)
		}
	}
	return nil
}

// readConfig reads the configuration file: its keys are the names of flags. A key that is none is an error with its line.
func (a *app) readConfig(cmd *cobra.Command) (map[string]string, error) {
	named := true
	path := a.config
	if path == "" {
		path = os.Getenv(envName("config"))
	}
	if path == "" {
		path, named = defaultConfig, false
	}
	a.configFile = path
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	known := map[string]bool{}
	everyFlag(cmd.Root(), func(_ *cobra.Command, f *pflag.Flag) { known[f.Name] = true })
	parsed, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %s", path, yaml.FormatError(err, false, true))
	}
	out := map[string]string{}
	for _, doc := range parsed.Docs {
		var pairs []*ast.MappingValueNode
		switch body := doc.Body.(type) {
		case nil:
			continue
		case *ast.MappingNode:
			pairs = body.Values
		default:
			return nil, fmt.Errorf("configuration %s: it must be a list of keys and values", path)
		}
		for _, p := range pairs {
			key := p.Key.String()
			if !known[key] {
				return nil, fmt.Errorf("configuration %s line %d: unknown key %q; keys are the names of flags", path, p.Key.GetToken().Position.Line, key)
			}
			var v any
			if err := yaml.NodeToValue(p.Value, &v); err != nil {
				return nil, fmt.Errorf("configuration %s line %d: %w", path, p.Key.GetToken().Position.Line, err)
			}
			if list, ok := v.([]any); ok {
				texts := make([]string, len(list))
				for i, x := range list {
					texts[i] = fmt.Sprint(x)
				}
				out[key] = strings.Join(texts, ",")
				continue
			}
			out[key] = fmt.Sprint(v)
		}
	}
	return out, nil
}

// everyFlag calls f for each flag of cmd and the verbs below.
func everyFlag(cmd *cobra.Command, f func(*cobra.Command, *pflag.Flag)) {
	cmd.PersistentFlags().VisitAll(func(flag *pflag.Flag) { f(cmd, flag) })
	cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) { f(cmd, flag) })
	for _, c := range cmd.Commands() {
		everyFlag(c, f)
	}
}

func (a *app) configCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "Show each setting, its value and where that came from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := a.readConfig(cmd)
			if err != nil {
				return advise(&usageError{err}, seeSettings)
			}
			type setting struct {
				Verb   string `json:"verb"`
				Key    string `json:"key"`
				Value  string `json:"value"`
				Source string `json:"source"`
			}
			var all []setting
			var failed error
			everyFlag(cmd.Root(), func(c *cobra.Command, f *pflag.Flag) {
				if f.Name == "help" || c.Hidden || c.Name() == "completion" || c.Parent() != nil && c.Parent().Name() == "completion" {
					return
				}
				if c != cmd.Root() {
					if err := a.resolveFlag(f, file); err != nil && failed == nil {
						failed = err
					}
				}
				verb := strings.TrimSpace(strings.TrimPrefix(c.CommandPath(), cmd.Root().Name()))
				value := f.Value.String()
				if f.Name == "token" && value != "" {
					value = "(set)"
				}
				all = append(all, setting{verb, f.Name, value, a.origins[f.Name]})
			})
			if failed != nil {
				return advise(&usageError{failed}, seeSettings)
			}
			sort.SliceStable(all, func(i, j int) bool { return all[i].Verb < all[j].Verb })
			t := a.table("VERB", "KEY", "VALUE", "SOURCE")
			for _, s := range all {
				t.row(s, orDash(s.Verb), s.Key, s.Value, s.Source)
			}
			return t.flush()
		},
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
