"""How fast the official Python SDK sends 1 KB JSON records over one stream: encoding outside the clock, flush inside."""
import sys
import time

import peer
from zerobus.sdk.sync import RecordType, StreamConfigurationOptions, TableProperties, ZerobusSdk

args = peer.arguments()
n, batch = int(args["n"]), int(args["batch"])
stream = ZerobusSdk(args["endpoint"], args["url"]).create_stream(
    args["client_id"], args["client_secret"], TableProperties(args["table"]), StreamConfigurationOptions(record_type=RecordType.JSON)
)
records = ['{"id":%d,"topic":"orders.new","payload":"%s","at":1700000000000000}' % (i, "x" * 900) for i in range(n)]
start = time.perf_counter()
if batch == 1:
    for r in records:
        stream.ingest_record_offset(r)
else:
    for i in range(0, n, batch):
        stream.ingest_records_offset(records[i : i + batch])
stream.flush()
peer.out(rate=n / (time.perf_counter() - start))
stream.close()
peer.end()
