package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

var checks = []check{
	{"what was put is there", contents},
	{"data belongs to its caller", ownership},
	{"empty content", func(c *checker) {
		c.put("x", "", store.PutOptions{IfAbsent: true})
		c.has("x", "")
	}},
	{"big content", bigContent},
	{"put replaces", func(c *checker) {
		c.put("x", "long content", store.PutOptions{})
		c.put("x", "short", store.PutOptions{})
		c.has("x", "short")
		c.lists("", "", "x")
	}},
	{"an open file is of one version", openFile},
	{"put if absent refuses a name that is taken", func(c *checker) {
		c.put("x", "first", store.PutOptions{IfAbsent: true})
		c.is("second put", c.s.Put(c.ctx, "x", []byte("second"), store.PutOptions{IfAbsent: true}), store.ErrExist)
		c.has("x", "first")
		c.lists("", "", "x")
	}},
	{"one of many racing writers wins, and nobody reads a part", race},
	{"times are kept", times},
	{"what is not there is said to be missing", func(c *checker) {
		c.put("dir/file", "1", store.PutOptions{})
		for _, name := range []string{"none", "dir", "dir/none", "none/none"} {
			c.each(c.ctx, name, func(op string, err error) { c.is(op+" "+name, err, store.ErrNotExist) })
		}
		c.has("dir/file", "1")
	}},
	{"delete", func(c *checker) {
		c.put("x/y", "1", store.PutOptions{})
		c.is("delete", c.s.Delete(c.ctx, "x/y"), nil)
		c.each(c.ctx, "x/y", func(op string, err error) { c.is(op+" after delete", err, store.ErrNotExist) })
		c.lists("", "", "")
		c.put("x/y", "2", store.PutOptions{IfAbsent: true})
		c.has("x/y", "2")
	}},
	{"list is in the order of bytes, and begins where it is told", listing},
	{"list of many", listMany},
	{"list sees what was put, at once", func(c *checker) {
		var want []string
		for v := range 20 {
			want = append(want, fmt.Sprintf("log/%020d.json", v))
			c.put(want[v], "x", store.PutOptions{IfAbsent: true})
			c.lists("log/", "", strings.Join(want, " "))
		}
	}},
	{"odd names", oddNames},
	{"names that leave the root are refused", func(c *checker) {
		for _, name := range []string{"", "..", "../x", "a/../../x", "a/../x", "/etc/passwd", "./x", "a//b", "a/", `a\b`, "a\x00b"} {
			c.is(fmt.Sprintf("put %q", name), c.s.Put(c.ctx, name, nil, store.PutOptions{}), fs.ErrInvalid)
			c.each(c.ctx, name, func(op string, err error) { c.is(fmt.Sprintf("%s %q", op, name), err, fs.ErrInvalid) })
		}
		c.lists("", "", "")
	}},
	{"a context that has ended ends operations", ended},
	{"address", func(c *checker) {
		if a, b := c.s.URL("t/a b"), c.s.URL("t/c"); !strings.Contains(a, "://") || a == b {
			c.errorf("URLs %s and %s", a, b)
		}
	}},
}

func contents(c *checker) {
	c.put("x/y/z.json", "content", store.PutOptions{})
	c.has("x/y/z.json", "content")
	info, err := c.s.Stat(c.ctx, "x/y/z.json")
	if err != nil || info.Name != "x/y/z.json" || info.Size != 7 || info.ModTime.IsZero() {
		c.errorf("stat: %+v, %v", info, err)
	}
	f, err := c.s.Open(c.ctx, "x/y/z.json")
	if err != nil {
		c.errorf("open: %v", err)
		return
	}
	if got, err := readAt(f, 3, 4); got != "tent" || err != nil || f.Size() != 7 {
		c.errorf("read at 3: %q of %d, %v", got, f.Size(), err)
	}
	if n, err := f.ReadAt(make([]byte, 10), 3); n != 4 || !errors.Is(err, io.EOF) {
		c.errorf("read beyond the end: %d bytes, %v, want 4 and EOF", n, err)
	}
	if n, err := f.ReadAt(make([]byte, 1), 7); n != 0 || !errors.Is(err, io.EOF) {
		c.errorf("read at the end: %d bytes, %v, want 0 and EOF", n, err)
	}
	c.is("close", f.Close(), nil)
}

func ownership(c *checker) {
	content := []byte("abc")
	c.is("put", c.s.Put(c.ctx, "x", content, store.PutOptions{}), nil)
	content[0] = 'X'
	c.has("x", "abc")
	if data, err := c.s.Get(c.ctx, "x"); err != nil || len(data) == 0 {
		c.errorf("get: %q, %v", data, err)
	} else {
		data[0] = 'X'
	}
	c.has("x", "abc")
}

// bigContent is larger than what clients of S3 send in one part when they may choose: a condition must hold for it too.
func bigContent(c *checker) {
	big := strings.Repeat("0123456789abcdef", 17<<20/16) + "end"
	c.put("big", big, store.PutOptions{IfAbsent: true})
	// A server may refuse before it has read all, and the answer be lost in what is still sent.
	if err := c.s.Put(c.ctx, "big", []byte("X"+big[1:]), store.PutOptions{IfAbsent: true}); !errors.Is(err, store.ErrExist) && !errors.Is(err, store.ErrUnclear) {
		c.errorf("second put: got error %v, want %v", err, store.ErrExist)
	}
	c.has("big", big)
	f, err := c.s.Open(c.ctx, "big")
	if err != nil {
		c.errorf("open: %v", err)
		return
	}
	for _, off := range []int64{0, 5<<20 - 8, 16<<20 - 8, int64(len(big)) - 16} {
		if got, err := readAt(f, off, 16); got != big[off:off+16] || err != nil {
			c.errorf("read at %d: %q, %v, want %q", off, got, err, big[off:off+16])
		}
	}
	c.is("close", f.Close(), nil)
}

// openFile: after a replacement an open file gives what it was opened on, or fails; never the new content, nor a mixture.
func openFile(c *checker) {
	c.put("x", "before", store.PutOptions{})
	f, err := c.s.Open(c.ctx, "x")
	if err != nil {
		c.errorf("open: %v", err)
		return
	}
	c.put("x", "after!", store.PutOptions{})
	if got, err := readAt(f, 0, 6); err == nil && got != "before" {
		c.errorf("a file opened before its replacement reads %q", got)
	}
	c.is("close", f.Close(), nil)
	c.has("x", "after!")
}

// race lets 16 writers at each name at once.
func race(c *checker) {
	const names, writers = 25, 16
	for n := range names {
		name := fmt.Sprintf("log/%020d.json", n)
		var mu sync.Mutex
		var winners []string
		var group sync.WaitGroup
		start := make(chan struct{})
		for w := range writers {
			group.Go(func() {
				content := strings.Repeat(string(rune('a'+w)), 4096)
				<-start
				err := c.s.Put(c.ctx, name, []byte(content), store.PutOptions{IfAbsent: true})
				if err != nil {
					c.is("put that lost", err, store.ErrExist)
				} else {
					mu.Lock()
					winners = append(winners, content)
					mu.Unlock()
				}
				got, err := c.s.Get(c.ctx, name)
				if err != nil || len(got) != 4096 || strings.Count(string(got), string(got[:1])) != 4096 {
					c.errorf("a loser reads %s, %v", short(string(got)), err)
				}
			})
		}
		close(start)
		group.Wait()
		if len(winners) != 1 {
			c.errorf("%s has %d winners: a table here loses commits", name, len(winners))
			continue
		}
		c.has(name, winners[0])
	}
}

func times(c *checker) {
	for _, at := range []time.Time{time.UnixMilli(1_700_000_000_123), time.UnixMilli(1_600_000_000_999)} {
		for _, ifAbsent := range []bool{true, false} {
			name := fmt.Sprint(at.UnixMilli(), ifAbsent)
			c.put(name, "x", store.PutOptions{IfAbsent: ifAbsent, ModTime: at})
			if info, err := c.s.Stat(c.ctx, name); err != nil || info.ModTime.UnixMilli() != at.UnixMilli() {
				c.errorf("set to %v, is %v, %v", at, info.ModTime, err)
			}
		}
	}
	for info, err := range c.s.List(c.ctx, "", "") {
		if err != nil || info.ModTime.IsZero() || info.Size != 1 {
			c.errorf("listed %+v, %v", info, err)
		}
	}
}

func listing(c *checker) {
	// By bytes of the whole name: "a-b" < "a/b" < "a0", although the directory a sorts before a-b.
	for _, name := range []string{"a/b/c", "a-b", "a0", "a/c", "b", "_log/1", "é", ".hidden.tmp"} {
		c.put(name, "x", store.PutOptions{})
	}
	for _, l := range []struct{ prefix, after, want string }{
		{"", "", ".hidden.tmp _log/1 a-b a/b/c a/c a0 b é"},
		{"a", "", "a-b a/b/c a/c a0"},
		{"a/", "", "a/b/c a/c"},
		{"a/b", "", "a/b/c"},
		{"a/b/", "", "a/b/c"},
		{"a/b/c", "", "a/b/c"},
		{"a", "a-b", "a/b/c a/c a0"},
		{"", "a/b/c", "a/c a0 b é"},
		{"a/", "a/b", "a/b/c a/c"},
		{"a/", "a/b0", "a/c"},
		{"", "z", "é"},
		{"none/", "", ""},
		{"a/none", "", ""},
	} {
		c.lists(l.prefix, l.after, l.want)
	}
	for _, err := range c.s.List(c.ctx, "", "") {
		c.is("list", err, nil)
		break // a caller may stop
	}
}

// listMany asks for more than S3 gives on one page.
func listMany(c *checker) {
	const n = 1100
	want := make([]string, n)
	todo := make(chan string)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for name := range todo {
				c.put(name, "x", store.PutOptions{})
			}
		})
	}
	for i := range n {
		want[i] = fmt.Sprintf("many/%05d", i)
		todo <- want[i]
	}
	close(todo)
	group.Wait()
	c.lists("many/", "", strings.Join(want, " "))
	c.lists("many/", want[49], strings.Join(want[50:], " "))
}

func oddNames(c *checker) {
	names := []string{
		"a b/c d", "100%/x", "%20", "%2F", "a+b", "a&b=c", "date=2026-12-01/x", "p=a%2Fb/x", "é/ü", "日本/語", "😀", "#1", "a;b,c", "(x)[y]{z}", "~x", "!x$@'", "_x", ".x",
	}
	for i, name := range names {
		c.put(name, fmt.Sprint(i), store.PutOptions{IfAbsent: true})
	}
	slices.Sort(names)
	c.lists("", "", strings.Join(names, " "))
	for _, name := range names {
		if data, err := c.s.Get(c.ctx, name); err != nil || len(data) == 0 {
			c.errorf("get %q: %q, %v", name, data, err)
		}
		if info, err := c.s.Stat(c.ctx, name); err != nil || info.Name != name {
			c.errorf("stat %q: %+v, %v", name, info, err)
		}
		f, err := c.s.Open(c.ctx, name)
		if err != nil {
			c.errorf("open %q: %v", name, err)
			continue
		}
		if got, err := readAt(f, 0, int(f.Size())); err != nil || got == "" {
			c.errorf("read %q: %q, %v", name, got, err)
		}
		c.is("close", f.Close(), nil)
		c.is("put "+name, c.s.Put(c.ctx, name, nil, store.PutOptions{IfAbsent: true}), store.ErrExist)
		c.is("delete "+name, c.s.Delete(c.ctx, name), nil)
	}
	c.lists("", "", "")
}

func ended(c *checker) {
	c.put("x", "1", store.PutOptions{})
	ctx, cancel := context.WithCancel(c.ctx)
	cancel()
	c.each(ctx, "x", func(op string, err error) { c.is(op, err, context.Canceled) })
	var listErr error
	for _, err := range c.s.List(ctx, "", "") {
		listErr = err
	}
	c.is("list", listErr, context.Canceled)
	c.is("put", c.s.Put(ctx, "y", nil, store.PutOptions{}), context.Canceled)
	c.is("put if absent", c.s.Put(ctx, "y", nil, store.PutOptions{IfAbsent: true}), context.Canceled)
	c.lists("", "", "x")
	c.has("x", "1")
}
