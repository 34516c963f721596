"""delta-rs appends messages to a bus's table: many small commits, again and again."""
import datetime
import uuid

import peer
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

args = peer.arguments()
# In a bucket: its server and the keys; conditional puts are delta-rs's own default.
busy = CommitProperties(max_commit_retries=1000)  # it gives up after 15 races lost, which busy writers make it lose
storage = {k: v for k, v in args.items() if k.startswith("AWS_")} or None
try:
    schema = pa.schema(DeltaTable(args["path"], storage_options=storage).schema().to_arrow())
    producer = str(uuid.uuid4())
    n = 0
    for _ in range(int(args["times"])):
        rows = []
        for _ in range(int(args["each"])):
            row = dict.fromkeys(schema.names)
            row.update(
                message_id=f"delta-rs-{n}", topic="three.deltars", source="delta-rs", payload="x", producer_id=producer,
                producer_seq=n, published_at=datetime.datetime.now(datetime.timezone.utc),
            )
            rows.append(row)
            n += 1
        write_deltalake(args["path"], pa.Table.from_pylist(rows, schema=schema), mode="append", storage_options=storage, commit_properties=busy)
    peer.out(sent=n)
except Exception as e:
    peer.out(error=str(e), kind=type(e).__name__)
