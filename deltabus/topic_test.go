package deltabus

import (
	"errors"
	"strings"
	"testing"
)

func TestValidTopic(t *testing.T) {
	t.Parallel()
	for topic, valid := range map[string]bool{
		"orders": true, "orders.new": true, "a-b_C.9": true, strings.Repeat("a", 255): true,
		"": false, ".": false, "a.": false, ".a": false, "a..b": false, "a b": false, "ä": false, "a.*": false, "a.>": false,
		"a,b": false, strings.Repeat("a", 256): false,
	} {
		if err := ValidTopic(topic); (err == nil) != valid || err != nil && !errors.Is(err, ErrTopic) {
			t.Errorf("%q: %v", topic, err)
		}
	}
}

func TestParseFilter(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"orders.new": "orders.new", "b , a,a": "a,b", "orders.*,audit.>": "audit.>,orders.*", ">": ">", "*": "*", "*.b.*": "*.b.*",
		"": "", ",": "", "a,": "", "a.>.b": "", "a*": "", "a..b": "", "a b": "", ">>": "", "a.>b": "",
	} {
		f, err := ParseFilter(in)
		if (err == nil) != (want != "") || err != nil && !errors.Is(err, ErrTopic) || f.String() != want {
			t.Errorf("%q: %q, %v", in, f, err)
		}
	}
}

func TestFilterMatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		filter, topic string
		want          bool
	}{
		{"orders", "orders", true},
		{"orders", "orders.new", false},
		{"orders.new", "orders", false},
		{"orders.*", "orders.new", true},
		{"orders.*", "orders", false},
		{"orders.*", "orders.new.eu", false},
		{"*.new", "orders.new", true},
		{"*", "orders", true},
		{"*", "", false},
		{"orders.>", "orders.new.eu", true},
		{"orders.>", "orders.new", true},
		{"orders.>", "orders", false},
		{">", "orders.new", true},
		{">", "", false},
		{"*.>", "orders", false},
		{"*.>", "orders.x", true},
		{"a,b.*", "b.c", true},
		{"a,b.*", "c", false},
		{"orders", "Orders", false},
		// Rows written past the publisher: literal, segment by segment.
		{"orders.*", "orders.né w", true},
		{"orders.*", "orders.", false},
		{">", "any thing at all", true},
	} {
		f, err := ParseFilter(tc.filter)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Match(tc.topic); got != tc.want {
			t.Errorf("%q matches %q: %v", tc.filter, tc.topic, got)
		}
	}
	if (Filter{}).Match("orders") {
		t.Error("the zero filter wants something")
	}
}

func FuzzParseFilter(f *testing.F) {
	for _, s := range []string{"orders.*,audit.>", ">", "a.b.c", "a..b", " a , b "} {
		f.Add(s, "orders.new")
	}
	f.Fuzz(func(t *testing.T, s, topic string) {
		filter, err := ParseFilter(s)
		if err != nil {
			return
		}
		again, err := ParseFilter(filter.String())
		if err != nil || again.String() != filter.String() {
			t.Fatalf("%q: its canonical form %q reads as %q, %v", s, filter, again, err)
		}
		if again.Match(topic) != filter.Match(topic) {
			t.Fatalf("%q and %q do not agree on %q", filter, again, topic)
		}
		if ValidTopic(s) == nil && !filter.Match(s) {
			t.Fatalf("the topic %q does not match itself", s)
		}
	})
}
