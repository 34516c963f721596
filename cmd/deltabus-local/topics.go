package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// settingsText is help settings; docs/cli.md has the same, as a test checks.
const settingsText = "Every flag is also an environment variable (`DELTABUS_` and its name in capitals, dashes as underscores: `DELTABUS_DATA_DIR`) and\n" +
	"a key of `deltabus-local.yaml` in the working directory. A flag counts over the environment, the environment over the\n" +
	"file, the file over the default. An empty variable counts as one that is not set. A key that is no flag is an error with its line.\n" +
	"`config` shows each setting, its value and where it came from.\n" +
	"\n" +
	"Where `DELTABUS_HOST` or `DELTABUS_TOKEN` is not set, `DATABRICKS_HOST` or `DATABRICKS_TOKEN` counts. `--host` and `--data-dir` both say which workspace is\n" +
	"meant, so the one that counts more is taken: the flag `--data-dir` sets a host of the environment or the file aside, as `config` shows; from one and\n" +
	"the same place the host is taken, but the two flags together are refused."

// topics are help texts that are no verb's: deltabus-local help TOPIC.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesText()},
		{Use: "settings", Short: "Flags, environment variables and the configuration file", Long: "Settings\n\n" + plain(settingsText)},
	}
}

func exitCodesText() string {
	var b strings.Builder
	b.WriteString("Exit codes\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "\n  %d  %s", c.code, plain(c.meaning))
	}
	return b.String()
}

// plain is text without Markdown's marks.
func plain(s string) string { return strings.NewReplacer("`", "", "**", "").Replace(s) }
