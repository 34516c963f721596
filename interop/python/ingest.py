"""Sends the rows of a JSON lines file through the official Python SDK: sync or async, JSON or protobuf, singles or batches."""
import asyncio
import json
import sys
import time

import peer

args = peer.arguments()


def rows():
    """The records as the SDK takes them."""
    lines = open(args["input"], encoding="utf-8").read().splitlines()
    if args["format"] == "json":
        # Text and objects are both taken: the sync client is given objects, the async one text.
        return [json.loads(s) for s in lines] if args["api"] == "sync" else lines
    from google.protobuf import json_format

    cls = peer.message_class(args["pb2_dir"], args["pb2"], args["message"])
    out = [json_format.ParseDict(json.loads(s), cls()) for s in lines]
    # Messages and bytes are both taken.
    return out if args["api"] == "sync" else [m.SerializeToString() for m in out]


def properties(module):
    if args["format"] == "json":
        return module.TableProperties(args["table"])
    cls = peer.message_class(args["pb2_dir"], args["pb2"], args["message"])
    return module.TableProperties(args["table"], cls.DESCRIPTOR)


def chunks(records):
    if args["mode"] == "single":
        yield from records
    else:
        n = int(args["batch"])
        for i in range(0, len(records), n):
            yield records[i : i + n]


pause = float(args.get("pause", 0))


def run_sync(records):
    from zerobus.sdk import sync
    from zerobus.sdk.sync import ZerobusSdk

    stream = ZerobusSdk(args["url"], args["url"]).create_stream(args["client_id"], args["client_secret"], properties(sync))
    ingest = stream.ingest_record_offset if args["mode"] == "single" else stream.ingest_records_offset
    for i, r in enumerate(chunks(records)):
        offset = ingest(r)
        if "ack" in args:  # each chunk is a commit of its own
            stream.wait_for_offset(offset)
        if pause:
            peer.out(progress=i)
            time.sleep(pause)
    stream.flush()
    stream.close()


async def run_async(records):
    from zerobus.sdk import aio
    from zerobus.sdk.aio import ZerobusSdk

    stream = await ZerobusSdk(args["url"], args["url"]).create_stream(args["client_id"], args["client_secret"], properties(aio))
    ingest = stream.ingest_record_offset if args["mode"] == "single" else stream.ingest_records_offset
    for i, r in enumerate(chunks(records)):
        offset = await ingest(r)
        if "ack" in args:
            await stream.wait_for_offset(offset)
        if pause:
            peer.out(progress=i)
            await asyncio.sleep(pause)
    await stream.flush()
    await stream.close()


try:
    records = rows()
    if args["api"] == "sync":
        run_sync(records)
    else:
        asyncio.run(run_async(records))
    peer.out(sent=len(records))
except Exception as e:
    peer.out(error=str(e), kind=type(e).__name__)
peer.end()
