// Sends the rows of a JSON lines file through the official TypeScript SDK: its native package, required directly.
const fs = require('fs');
const path = require('path');

const args = Object.fromEntries(process.argv.slice(2).map((a) => [a.slice(0, a.indexOf('=')), a.slice(a.indexOf('=') + 1)]));
const installed = (name) => require(path.join(args.modules, name));
const { ZerobusSdk, RecordType } = installed('@databricks/zerobus-ingest-sdk-linux-x64-gnu');
const out = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');
const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

// Integers beyond 2^53 are kept as text, which protobufjs takes for int64.
const parse = (line) => JSON.parse(line.replace(/([:[,])(-?\d{16,})(?=[,}\]])/g, '$1"$2"'));

// protobufjs takes an absent field, not a null.
function withoutNulls(v) {
  if (Array.isArray(v)) return v.map(withoutNulls);
  if (v === null || typeof v !== 'object') return v;
  return Object.fromEntries(Object.entries(v).filter(([, x]) => x !== null).map(([k, x]) => [k, withoutNulls(x)]));
}

function records() {
  const lines = fs.readFileSync(args.input, 'utf8').trimEnd().split('\n');
  if (args.format === 'json') return lines;
  const type = installed('protobufjs').loadSync(args.proto).lookupType(args.message);
  return lines.map((line) => Buffer.from(type.encode(type.fromObject(withoutNulls(parse(line)))).finish()));
}

async function main() {
  const all = records();
  const table = { tableName: args.table };
  if (args.format === 'proto') table.descriptorProto = args.descriptor;
  const sdk = new ZerobusSdk(args.url, args.url);
  const stream = await sdk.createStream(table, args.client_id, args.client_secret, {
    recordType: args.format === 'json' ? RecordType.Json : RecordType.Proto,
  });
  const pause = Number(args.pause || 0);
  const n = args.mode === 'single' ? 1 : Number(args.batch);
  for (let i = 0; i < all.length; i += n) {
    if (n === 1) await stream.ingestRecordOffset(all[i]);
    else await stream.ingestRecordsOffset(all.slice(i, i + n));
    if (pause) {
      out({ progress: i });
      await sleep(pause);
    }
  }
  await stream.flush();
  await stream.close();
  out({ sent: all.length });
}

main().catch((e) => out({ error: String(e.message), kind: e.constructor.name }));
