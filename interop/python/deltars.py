"""delta-rs behind JSON lines: rows, changes and appends, one request a line."""
import json
import sys

import peer
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake


def rows(path, version=None):
    return peer.canonical_rows(DeltaTable(path, version=version).to_pyarrow_table())


def changes(path, start, end):
    table = pa.table(DeltaTable(path).load_cdf(starting_version=start, ending_version=end).read_all())
    return peer.canonical_rows(table.drop_columns(["_commit_timestamp"]))


def append(path, source, key, below, add):
    """Appends the rows of source with key < below, key raised by add."""
    table = DeltaTable(source).to_pyarrow_table()
    table = table.filter(pc.less(table[key], below))
    i = table.schema.get_field_index(key)
    field = table.schema.field(i)
    table = table.set_column(i, field, pc.add(table[key], add))
    write_deltalake(path, table, mode="append")
    return DeltaTable(path).version()


def insert(path, rows):
    """Appends rows that are given."""
    write_deltalake(path, peer.arrow_rows(rows, DeltaTable(path).to_pyarrow_dataset().schema), mode="append")
    return DeltaTable(path).version()


def delete(path, predicate):
    """Deletes rows by an SQL condition."""
    table = DeltaTable(path)
    table.delete(predicate)
    return table.version()


def version(path):
    return DeltaTable(path).version()


operations = {f.__name__: f for f in (rows, changes, append, insert, delete, version)}
for line in sys.stdin:
    request = json.loads(line)
    try:
        peer.out(result=operations[request.pop("op")](**request))
    except Exception as e:
        peer.out(error=f"{type(e).__name__}: {e}")
