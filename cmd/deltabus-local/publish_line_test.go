package main

import "testing"

func TestLinesAreTakenWholeOrRefused(t *testing.T) {
	t.Parallel()
	for line, ok := range map[string]bool{
		`{"payload":"a"}`: true, ` {"payload":"a"} ` + "\r\n": true, `{"payload":"\ud83d\ude00 \\ud800"}`: true,
		`{"payload":"A"}{"payload":"B"}`: false, `{"payload":"a"} trailing`: false, `null`: false, `[]`: false,
		"{\"payload\":\"\xff\xfe\"}": false, `{"payload":"\ud800"}`: false, `{"payload":"\ude00"}`: false, `{"payload":"\ud83dx"}`: false,
		`{"payload":"\ud83d\ud83d\ude00"}`: false,
	} {
		if _, err := parseLine([]byte(line), "t"); (err == nil) != ok {
			t.Errorf("%q: %v", line, err)
		}
	}
}
