// Package store is where the bytes of tables live: a flat namespace of files that can be read, listed, replaced
// whole and, for commits, created only if absent. Implementations: Local (a directory), Memory (in-process use
// only), S3 (a bucket), Crashable (tests of what survives a crash), and WithFaults, which fails, tears or loses the n-th operation of another
// store.
package store

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"time"
)

// ErrNotExist is returned, wrapped, by Get, Open, Stat and Delete for a name that is not there. It equals
// fs.ErrNotExist.
var ErrNotExist = fs.ErrNotExist

// ErrExist is returned, wrapped, by Put with IfAbsent when the name is taken. It equals fs.ErrExist.
var ErrExist = fs.ErrExist

// ErrSyncFailed marks a Put whose fsync failed. What is on disk is unknown: the writer must stop and recover from
// the log (design.md, decision 2); it must never retry.
var ErrSyncFailed = errors.New("sync failed")

// ErrUnclear marks a Put whose answer was lost: it may have been done, or may still be. Reading the name tells only the first.
var ErrUnclear = errors.New("outcome unclear")

// Info describes one file.
type Info struct {
	// Name is the whole name below the store's root, with forward slashes.
	Name string
	// Size is in bytes.
	Size int64
	// ModTime is the modification time. Stat tells the one that a Put with ModTime set, to the millisecond at least; List may tell when the
	// file was written instead, where more would cost a request each (S3).
	ModTime time.Time
}

// File is an open file for random access. It must be closed.
type File interface {
	io.ReaderAt
	io.Closer
	// Size is in bytes.
	Size() int64
}

// PutOptions says how a Put writes. The zero value replaces what is there.
type PutOptions struct {
	// IfAbsent makes Put fail with ErrExist if the name is taken. Exactly one of several racing writers wins, in
	// this and other processes, and no reader ever sees part of the content.
	IfAbsent bool
	// ModTime, if not zero, becomes the file's modification time before the file becomes visible.
	ModTime time.Time
	// NoDirs makes Put fail with ErrNotExist where the directory of name is not there, instead of making it. A store without directories has none
	// to miss.
	NoDirs bool
}

// Store is a namespace of files. Names are relative, slash-separated, without "." or ".." elements. A Put is
// durable when it returns nil (unless the store was opened without sync by explicit choice), and atomic: readers
// see nothing or the whole content. All methods are safe for concurrent use.
type Store interface {
	// Get returns the whole content of name.
	Get(ctx context.Context, name string) ([]byte, error)
	// Open opens name for random access. When name is replaced meanwhile, the File reads what it was opened on or fails.
	Open(ctx context.Context, name string) (File, error)
	// Stat describes name; it is one cheap operation (one stat, one HEAD).
	Stat(ctx context.Context, name string) (Info, error)
	// List yields every file whose name begins with prefix and is greater than startAfter, ascending by bytes.
	// It descends into directories, as object stores do. An absent directory yields nothing.
	List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error]
	// Put writes name whole, making parent directories as needed, unless opts say otherwise.
	Put(ctx context.Context, name string, data []byte, opts PutOptions) error
	// Delete removes name.
	Delete(ctx context.Context, name string) error
	// URL is the address of name for other programs: file:///… for a directory, memory:///… for memory.
	URL(name string) string
}
