package interop

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// ingestJS starts the TypeScript SDK's program.
func (s *server) ingestJS(table, input string, extra arguments) *worker {
	s.t.Helper()
	args := s.arguments(table, input)
	args["modules"] = peer(s.t, "npm", "node_modules")
	for k, v := range extra {
		args[k] = v
	}
	return startWorker(s.t, "node", append([]string{source(s.t, "js", "ingest.js")}, args.words()...)...)
}

// ingestJava starts the Java SDK's program.
func (s *server) ingestJava(table, input string, extra arguments) *worker {
	s.t.Helper()
	args := s.arguments(table, input)
	for k, v := range extra {
		args[k] = v
	}
	if args["format"] == "proto" {
		args["input"] = textFormat(s.t, args["descriptors"].(string), input)
	}
	jvm := []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8", "-cp", filepath.Join(peer(s.t, "java-jars"), "*"), source(s.t, "java", "Ingest.java")}
	return startWorker(s.t, "java", append(jvm, args.words()...)...)
}

// rowMessage is the message Row of a compiled descriptor set.
func rowMessage(t *testing.T, descriptors string) protoreflect.MessageDescriptor {
	t.Helper()
	b, err := os.ReadFile(descriptors)
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(b, &set); err != nil {
		t.Fatal(err)
	}
	file, err := protodesc.NewFile(set.File[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	return file.Messages().ByName("Row")
}

// descriptorBase64 is the message as the TypeScript SDK wants it.
func descriptorBase64(t *testing.T, descriptors string) string {
	t.Helper()
	b, err := proto.Marshal(protodesc.ToDescriptorProto(rowMessage(t, descriptors)))
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b)
}

// textFormat rewrites JSON lines as protobuf text format, which protobuf-java reads without further libraries.
func textFormat(t *testing.T, descriptors, input string) string {
	t.Helper()
	desc := rowMessage(t, descriptors)
	in, err := os.Open(input)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out []byte
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		m := dynamicpb.NewMessage(desc)
		if err := protojson.Unmarshal(lines.Bytes(), m); err != nil {
			t.Fatal(err)
		}
		b, err := prototext.MarshalOptions{EmitASCII: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		out = append(append(out, b...), '\n')
	}
	path := filepath.Join(t.TempDir(), "rows.txt")
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTypeScriptAndJavaSDK: what the official TypeScript and Java SDKs send is in the table, row for row.
func TestTypeScriptAndJavaSDK(t *testing.T) {
	s := serve(t)
	class := handwrittenClass(t, everything)
	class["descriptor"] = descriptorBase64(t, class["descriptors"].(string))
	s.everyRow(map[string]ingester{"ts": s.ingestJS, "java": s.ingestJava}, class)
}

// ingester starts a program that sends a file of rows to a table.
type ingester func(table, input string, extra arguments) *worker

// everyRow has each SDK send all columns as JSON and as the class's message, singly and in batches, and compares what is in the table then.
func (s *server) everyRow(sdks map[string]ingester, class arguments) {
	input, expected := writeRows(s.t, everything, 0, records)
	for sdk, ingest := range sdks {
		for _, format := range []string{"json", "proto"} {
			for _, mode := range []string{"single", "batch"} {
				s.t.Run(fmt.Sprint(sdk, "/", format, "/", mode), func(t *testing.T) {
					name := fmt.Sprintf("main.%s.%s_%s", sdk, format, mode)
					dir := s.createTable(name, definitions(everything), nil, nil)
					extra := arguments{"format": format, "mode": mode}
					if format == "proto" {
						for k, v := range class {
							extra[k] = v
						}
					}
					sent(t, ingest(name, input, extra), records)
					equalRows(t, "deltalog", ours(t, dir, -1), expected)
					equalRows(t, "delta-rs", deltaRS.rows(t, dir, -1), expected)
				})
			}
		}
	}
}
