package main

import "github.com/spf13/cobra"

func (a *app) conformanceCommand() *cobra.Command {
	return &cobra.Command{Use: "conformance", Hidden: true}
}
