"""Several SDK streams that write to one table until stdin says stop, and say what was acknowledged."""
import json
import random
import sys
import threading

import peer
from zerobus.sdk.sync import TableProperties, ZerobusSdk

args = peer.arguments()
stop = threading.Event()
lock = threading.Lock()


def say(**answer):
    with lock:
        peer.out(**answer)


def write(n):
    """Ids n, n+streams, n+2*streams and so on; waits for acknowledgements now and then."""
    try:
        stream = ZerobusSdk(args["url"], args["url"]).create_stream(args["client_id"], args["client_secret"], TableProperties(args["table"]))
        rnd = random.Random(n)
        i = acked = 0
        while not stop.is_set():
            for _ in range(rnd.randint(1, 40)):
                offset = stream.ingest_record_offset({"id": i * int(args["streams"]) + n, "stream": n, "text": "x" * 200})
                i += 1
            stream.wait_for_offset(offset)
            say(stream=n, acked=i)
            stop.wait(float(args.get("pause", 0)))
        stream.flush()
        stream.close()
        say(stream=n, acked=i, closed=True)
    except Exception as e:
        say(stream=n, error=f"{type(e).__name__}: {e}")


threads = [threading.Thread(target=write, args=(n,)) for n in range(int(args["streams"]))]
for t in threads:
    t.start()
sys.stdin.readline()
stop.set()
for t in threads:
    t.join()
peer.end()
