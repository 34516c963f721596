import com.databricks.zerobus.ZerobusJsonStream;
import com.databricks.zerobus.ZerobusProtoStream;
import com.databricks.zerobus.ZerobusSdk;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import com.google.protobuf.TextFormat;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Sends the rows of a file through the official Java SDK: JSON lines as they are, protobuf text format through DynamicMessage. */
public class Ingest {
  static final Map<String, String> ARGS = new HashMap<>();

  public static void main(String[] words) throws Exception {
    for (String w : words) ARGS.put(w.substring(0, w.indexOf('=')), w.substring(w.indexOf('=') + 1));
    List<String> lines = Files.readAllLines(Path.of(ARGS.get("input")));
    try (ZerobusSdk sdk = new ZerobusSdk(ARGS.get("url"), ARGS.get("url"))) {
      if (ARGS.get("format").equals("json")) json(sdk, lines);
      else proto(sdk, lines);
      System.out.println("{\"sent\":" + lines.size() + "}");
    } catch (Exception e) {
      Throwable cause = e instanceof java.util.concurrent.ExecutionException ? e.getCause() : e;
      System.out.println("{\"error\":" + quote(String.valueOf(cause.getMessage())) + ",\"kind\":\"" + cause.getClass().getSimpleName() + "\"}");
    }
    System.exit(0);
  }

  static void json(ZerobusSdk sdk, List<String> lines) throws Exception {
    ZerobusJsonStream stream = sdk.createJsonStream(ARGS.get("table"), ARGS.get("client_id"), ARGS.get("client_secret")).join();
    each(lines, stream::ingestRecordOffset, stream::ingestRecordsOffset);
    stream.flush();
    stream.close();
  }

  static void proto(ZerobusSdk sdk, List<String> lines) throws Exception {
    FileDescriptorSet set = FileDescriptorSet.parseFrom(Files.readAllBytes(Path.of(ARGS.get("descriptors"))));
    Descriptor type = FileDescriptor.buildFrom(set.getFile(0), new FileDescriptor[0]).findMessageTypeByName(ARGS.get("message"));
    List<Message> messages = new ArrayList<>();
    for (String line : lines) {
      DynamicMessage.Builder b = DynamicMessage.newBuilder(type);
      TextFormat.merge(line, b);
      messages.add(b.build());
    }
    ZerobusProtoStream stream = sdk.createProtoStream(ARGS.get("table"), type.toProto(), ARGS.get("client_id"), ARGS.get("client_secret")).join();
    each(messages, stream::ingestRecordOffset, stream::ingestRecordsOffset);
    stream.flush();
    stream.close();
  }

  interface Call<T> {
    void with(T t) throws Exception;
  }

  static <T> void each(List<T> all, Call<T> single, Call<List<T>> batch) throws Exception {
    int n = ARGS.get("mode").equals("single") ? 1 : Integer.parseInt(ARGS.get("batch"));
    long pause = (long) (1000 * Double.parseDouble(ARGS.getOrDefault("pause", "0")));
    for (int i = 0; i < all.size(); i += n) {
      if (n == 1) single.with(all.get(i));
      else batch.with(all.subList(i, Math.min(i + n, all.size())));
      if (pause > 0) {
        System.out.println("{\"progress\":" + i + "}");
        Thread.sleep(pause);
      }
    }
  }

  static String quote(String s) {
    return '"' + s.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + '"';
  }
}
