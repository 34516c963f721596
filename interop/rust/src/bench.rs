//! How fast the SDK sends 1 KB records over one stream: encoding outside the clock, flush inside.

use std::time::Instant;

use databricks_zerobus_ingest_sdk::schema::{descriptor_from_uc_columns, UcColumn};
use databricks_zerobus_ingest_sdk::{
    message_descriptor, DynamicRecord, EncodedRecord, ZerobusResult,
};
use serde_json::json;

use crate::{out, Args};

pub async fn run(args: &Args) -> ZerobusResult<()> {
    let n: usize = args.get("n").parse().expect("n=");
    let batch: usize = args.get("batch").parse().expect("batch=");
    let sdk = args.sdk(args.get("endpoint"))?;
    let mut builder = sdk
        .stream_builder()
        .table(args.get("table"))
        .oauth(args.get("client_id"), args.get("client_secret"));
    let payload = "x".repeat(900);
    let mut records = Vec::with_capacity(n);
    if args.get("format") == "proto" {
        let columns = [
            ("id", "BIGINT"),
            ("topic", "STRING"),
            ("payload", "STRING"),
            ("at", "TIMESTAMP"),
        ];
        let columns: Vec<_> = columns
            .iter()
            .zip(0..)
            .map(|(c, i)| UcColumn::new(c.0, c.1).with_position(i))
            .collect();
        let message =
            message_descriptor(&descriptor_from_uc_columns(&columns, "Row").expect("descriptor"))?;
        for i in 0..n as i64 {
            let mut r = DynamicRecord::new(message.clone());
            r.set("id", i)?
                .set("topic", "orders.new")?
                .set("payload", payload.as_str())?
                .set("at", 1_700_000_000_000_000i64)?;
            records.push(EncodedRecord::Proto(r.encode()?));
        }
        builder = builder.dynamic_proto(message);
    } else {
        for i in 0..n {
            records.push(EncodedRecord::Json(format!(
                r#"{{"id":{i},"topic":"orders.new","payload":"{payload}","at":1700000000000000}}"#
            )));
        }
        builder = builder.json();
    }
    let mut stream = builder.build().await?;
    let start = Instant::now();
    let mut records = records.into_iter();
    if batch == 1 {
        for r in records {
            stream.ingest_record_offset(r).await?;
        }
    } else {
        while records.len() > 0 {
            stream
                .ingest_records_offset(records.by_ref().take(batch))
                .await?;
        }
    }
    stream.flush().await?;
    let seconds = start.elapsed().as_secs_f64();
    out(json!({"rate": n as f64 / seconds}));
    stream.close().await
}
