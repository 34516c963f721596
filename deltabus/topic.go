package deltabus

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrTopic marks a topic or a filter that is not well formed.
var ErrTopic = errors.New("invalid topic")

// maxTopic is the longest topic in bytes.
const maxTopic = 255

// ValidTopic checks a topic that is to be published to: segments of letters, digits, _ and -, parted by dots, at most
// 255 bytes. The error matches ErrTopic.
func ValidTopic(topic string) error {
	if len(topic) > maxTopic {
		return fmt.Errorf("topic of %d bytes: %w: at most %d bytes are allowed", len(topic), ErrTopic, maxTopic)
	}
	for segment := range strings.SplitSeq(topic, ".") {
		if !validSegment(segment) {
			return fmt.Errorf("topic %q: %w: use segments of letters, digits, _ and -, parted by dots", topic, ErrTopic)
		}
	}
	return nil
}

func validSegment(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return s != ""
}

// Filter says which topics a consumer wants: patterns of segments parted by dots, where * stands for one segment and a
// last > for one or more. The zero Filter wants nothing.
type Filter struct{ patterns [][]string }

// ParseFilter reads patterns parted by commas: "orders.*,audit.>". The error matches ErrTopic.
func ParseFilter(s string) (Filter, error) {
	var f Filter
	for pattern := range strings.SplitSeq(s, ",") {
		segments := strings.Split(strings.TrimSpace(pattern), ".")
		for i, segment := range segments {
			last := i == len(segments)-1
			if segment != "*" && !validSegment(segment) && (segment != ">" || !last) {
				return Filter{}, fmt.Errorf("topic filter %q: %w: use topics like orders.new, * for one segment, a last > for the rest, commas between several", s, ErrTopic)
			}
		}
		f.patterns = append(f.patterns, segments)
	}
	slices.SortFunc(f.patterns, slices.Compare)
	f.patterns = slices.CompactFunc(f.patterns, slices.Equal)
	return f, nil
}

// String is the canonical form: patterns sorted, each once, parted by commas. Two filters that are written
// differently but have the same patterns are the same filter.
func (f Filter) String() string {
	parts := make([]string, len(f.patterns))
	for i, p := range f.patterns {
		parts[i] = strings.Join(p, ".")
	}
	return strings.Join(parts, ",")
}

// Match reports whether the filter wants a topic. Rows written past the publisher may have any topic; it is matched
// segment by segment, literally.
func (f Filter) Match(topic string) bool {
	for _, p := range f.patterns {
		if matches(p, topic) {
			return true
		}
	}
	return false
}

func matches(pattern []string, topic string) bool {
	for i, want := range pattern {
		if want == ">" && i == len(pattern)-1 {
			return topic != ""
		}
		segment, rest, more := strings.Cut(topic, ".")
		if want != "*" && want != segment || want == "*" && segment == "" {
			return false
		}
		if last := i == len(pattern)-1; last || !more {
			return last && !more
		}
		topic = rest
	}
	return false
}
