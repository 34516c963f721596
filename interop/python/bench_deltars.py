"""What delta-rs does in the same run: commits of one row a second (it does not sync files), and rows of a change feed a second."""
import sys
import time

import peer
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

args = peer.arguments()
row = pa.table({"id": pa.array([1], pa.int64()), "p": pa.array(["x"])})
write_deltalake(args["dir"], row)
n = int(args["commits"])
start = time.perf_counter()
table = DeltaTable(args["dir"])
for _ in range(n):
    write_deltalake(table, row, mode="append")
commits = n / (time.perf_counter() - start)
best = 0
for _ in range(5):  # as the other side does
    start = time.perf_counter()
    feed = DeltaTable(args["feed"]).load_cdf(starting_version=1).read_all()
    best = max(best, feed.num_rows / (time.perf_counter() - start))
peer.out(commits=commits, feed=best, rows=feed.num_rows)
