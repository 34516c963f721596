"""Sends records to the official Python SDK exactly as they are given, right or wrong, a stream for each case: JSON text, or bytes under a
message class. Prints what the SDK raises for each case, in the order given; records before the last are waited for first."""
import base64
import json
import sys

import peer
from zerobus.sdk.sync import TableProperties, ZerobusSdk

args = peer.arguments()
for case in json.load(open(args["input"], encoding="utf-8")):
    try:
        sdk = ZerobusSdk(args["url"], args["url"])
        if case.get("message"):
            properties = TableProperties(case["table"], peer.message_class(args["pb2_dir"], args["pb2"], case["message"]).DESCRIPTOR)
            records = [base64.b64decode(r) for r in case["records"] or []]
        else:
            properties, records = TableProperties(case["table"]), case["records"] or []
        stream = sdk.create_stream(args["client_id"], args["client_secret"], properties)
        offset = None
        for r in records:
            if isinstance(r, dict):  # a record of so many bytes, which need not go through a file
                r = json.dumps({"id": 1, "text": "x" * r["size"]})
            offset = stream.ingest_record_offset(r)
        stream.flush()
        stream.close()
        peer.out(error="", kind="")
    except Exception as e:
        peer.out(error=str(e), kind=type(e).__name__)
peer.end()
