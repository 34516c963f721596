"""Writes messages of a bus through the official SDK, at a pace."""
import json
import time
import uuid

import peer
from zerobus.sdk.sync import TableProperties, ZerobusSdk

args = peer.arguments()
try:
    stream = ZerobusSdk(args["url"], args["url"]).create_stream(args["client_id"], args["client_secret"], TableProperties(args["table"]))
    producer = str(uuid.uuid4())
    for i in range(int(args["count"])):
        offset = stream.ingest_record_offset({
            "message_id": f"{args['prefix']}-{i}", "topic": "three.sdk", "source": args["prefix"], "payload": "x",
            "producer_id": producer, "producer_seq": i, "published_at": time.time_ns() // 1000,
        })
        if i % 20 == 0:
            stream.wait_for_offset(offset)
            peer.out(progress=i)
            time.sleep(0.02)
    stream.flush()
    stream.close()
    peer.out(sent=int(args["count"]))
except Exception as e:
    peer.out(error=str(e), kind=type(e).__name__)
peer.end()
