"""Apache Spark with Delta Lake behind JSON lines: rows, changes and appends, one request a line, one session for the whole run."""
import glob
import json
import os
import sys

os.environ["TZ"] = "UTC"
import peer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

args = peer.arguments()
settings = {
    "spark.jars": ",".join(sorted(glob.glob(args["jars"] + "/*.jar"))),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.warehouse.dir": args["scratch"],
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Tables change under Spark: it looks at the log for every question.
    "spark.databricks.delta.stalenessLimit": "0",
    # Small tables: compiling costs more than running.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "OFF",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -Dderby.system.home=" + args["scratch"],
}
builder = SparkSession.builder.master("local[2]").appName("interop")
for key, value in settings.items():
    builder = builder.config(key, value)
session = builder.getOrCreate()


def _load(path, **options):
    return session.read.format("delta").options(**options).load(path)


def rows(path, version=None):
    options = {} if version is None else {"versionAsOf": str(version)}
    return peer.canonical_rows(_load(path, **options).toArrow())


def changes(path, start, end):
    feed = _load(path, readChangeFeed="true", startingVersion=str(start), endingVersion=str(end))
    return peer.canonical_rows(feed.drop("_commit_timestamp").toArrow())


def append(path, source, key, below, add, timestamps="TIMESTAMP_MICROS"):
    """Appends the rows of source with key < below, key raised by add. timestamps is how Spark stores them: INT96 is its default."""
    session.conf.set("spark.sql.parquet.outputTimestampType", timestamps)
    part = _load(source).where(F.col(key) < below).withColumn(key, F.col(key) + F.lit(add).cast("bigint"))
    part.write.format("delta").mode("append").save(path)
    return version(path)


def insert(path, rows):
    """Appends rows that are given."""
    table = peer.arrow_rows(rows, _load(path).limit(0).toArrow().schema)
    session.createDataFrame(table).write.format("delta").mode("append").save(path)
    return version(path)


def sql(text):
    """Runs a statement."""
    session.sql(text).collect()


def version(path):
    return session.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()[0]["version"]


operations = {f.__name__: f for f in (rows, changes, append, insert, sql, version)}
for line in sys.stdin:
    request = json.loads(line)
    try:
        peer.out(result=operations[request.pop("op")](**request))
    except Exception as e:
        peer.out(error=f"{type(e).__name__}: {e}")
