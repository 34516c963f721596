package deltabus

import (
	"context"

	"github.com/deltabus/deltabus-local/deltalog"
)

// Workspace is what a bus needs of the place where its tables live: find a table by its three-part name, and make
// one. OnStore and OnHost give one; *emulator.Emulator is one. Safe for concurrent use.
type Workspace interface {
	// Table opens catalog.schema.table. An absent table is an error that matches deltalog.ErrNotTable.
	Table(ctx context.Context, fullName string) (*deltalog.Table, error)
	// CreateTable makes catalog.schema.table; an existing one is an error that matches deltalog.ErrTableExists.
	CreateTable(ctx context.Context, fullName string, spec deltalog.TableSpec) (*deltalog.Table, error)
}
