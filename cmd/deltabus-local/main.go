// Command deltabus-local is a Databricks workspace for event-driven code on a laptop, and the tools around it. docs/cli.md
// describes every verb.
package main

import (
	"os"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
