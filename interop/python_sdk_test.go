package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// records is how many each SDK sends each way.
const records = 10_000

// ingest starts the Python SDK's program for a table. extra overrides arguments.
func (s *server) ingest(table, input string, extra arguments) *worker {
	s.t.Helper()
	args := s.arguments(table, input)
	for k, v := range extra {
		args[k] = v
	}
	return startWorker(s.t, python(s.t), append([]string{source(s.t, "python", "ingest.py")}, args.words()...)...)
}

func (s *server) arguments(table, input string) arguments {
	return arguments{
		"url": s.HTTP, "client_id": s.ClientID, "client_secret": s.ClientSecret,
		"table": table, "input": input, "batch": 500, "format": "json", "mode": "single", "api": "sync",
	}
}

// sent fails unless the peer sent everything.
func sent(t *testing.T, w *worker, n int) {
	t.Helper()
	if a := w.answer(3 * time.Minute); a.Error != "" || a.Sent != n {
		t.Fatalf("%s sent %d of %d: %s %s\n%s", w.name, a.Sent, n, a.Kind, a.Error, w.errs.Bytes())
	}
}

// pythonClass runs the SDK's own generate_proto against the server and compiles what it makes.
func (s *server) pythonClass(table, message string) arguments {
	s.t.Helper()
	dir := s.t.TempDir()
	command(s.t, python(s.t), "-m", "zerobus.tools.generate_proto", "--uc-endpoint", s.HTTP, "--client-id", s.ClientID,
		"--client-secret", s.ClientSecret, "--table", table, "--proto-msg", message, "--output", filepath.Join(dir, "generated.proto"))
	command(s.t, python(s.t), "-m", "grpc_tools.protoc", "-I", dir, "--python_out", dir, filepath.Join(dir, "generated.proto"))
	return arguments{"pb2_dir": dir, "pb2": "generated_pb2", "message": message}
}

// handwrittenClass compiles the message that a user would write by hand.
func handwrittenClass(t *testing.T, columns []column) arguments {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "handwritten.proto")
	if err := os.WriteFile(file, []byte(protoSource(columns)), 0o600); err != nil {
		t.Fatal(err)
	}
	set := filepath.Join(dir, "descriptors.pb")
	command(t, python(t), "-m", "grpc_tools.protoc", "-I", dir, "--python_out", dir, "--descriptor_set_out", set, file)
	return arguments{"pb2_dir": dir, "pb2": "handwritten_pb2", "message": "Row", "proto": file, "descriptors": set}
}

// TestPythonSDK: what the official Python SDK sends is in the table, row for row, by our reader and by delta-rs.
func TestPythonSDK(t *testing.T) {
	s := serve(t)
	for _, format := range []string{"json", "generated", "handwritten"} {
		columns := everything
		if format == "generated" {
			columns = generatable
		}
		input, expected := writeRows(t, columns, 0, records)
		for _, api := range []string{"sync", "async"} {
			for _, mode := range []string{"single", "batch"} {
				if format == "handwritten" && (api != "sync" || mode != "batch") {
					continue // what it adds is decimals
				}
				t.Run(fmt.Sprint(format, "/", api, "/", mode), func(t *testing.T) {
					name := fmt.Sprintf("main.python.%s_%s_%s", format, api, mode)
					dir := s.createTable(name, definitions(columns), nil, nil)
					extra := arguments{"api": api, "mode": mode}
					switch format {
					case "generated":
						extra = s.pythonClass(name, "Row")
						extra["format"] = "proto"
					case "handwritten":
						extra = handwrittenClass(t, columns)
						extra["format"] = "proto"
					}
					extra["api"], extra["mode"] = api, mode
					sent(t, s.ingest(name, input, extra), records)
					equalRows(t, "deltalog", ours(t, dir, -1), expected)
					equalRows(t, "delta-rs", deltaRS.rows(t, dir, -1), expected)
				})
			}
		}
	}
}
