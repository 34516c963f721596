"""The official workspace client, databricks-sdk, on the parts of the workspace that the emulator has."""
import peer
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import NotFound

args = peer.arguments()
if args["auth"] == "token":
    w = WorkspaceClient(host=args["url"], token=args["token"], auth_type="pat")
else:
    w = WorkspaceClient(host=args["url"], client_id=args["client_id"], client_secret=args["client_secret"], auth_type="oauth-m2m")


def missing(call, name):
    try:
        call(name)
    except NotFound as e:
        return str(e)
    return "found"


schema = "made_by_" + args["auth"]
w.schemas.create(name=schema, catalog_name="main")
table = w.tables.get(args["table"])
peer.out(
    user=w.current_user.me().user_name,
    catalogs=[c.name for c in w.catalogs.list()],
    catalog=w.catalogs.get("main").name,
    schemas=[s.full_name for s in w.schemas.list("main")],
    schema=w.schemas.get("main." + schema).full_name,
    tables=[t.full_name for t in w.tables.list("main", "sdk")],
    columns=[[c.name, c.type_text, bool(c.nullable)] for c in table.columns],
    table_type=table.table_type.value,
    format=table.data_source_format.value,
    location=table.storage_location,
    missing_table=missing(w.tables.get, "main.sdk.nowhere"),
    missing_schema=missing(w.schemas.get, "main.nowhere"),
    missing_catalog=missing(w.catalogs.get, "nowhere"),
)
w.schemas.delete("main." + schema)
