package deltalog

import "unsafe"

// stringBytes is s without a copy; the bytes are only read.
func stringBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
