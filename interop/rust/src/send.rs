//! Sends records exactly as they are given, right or wrong, a stream for each case: JSON text, or bytes under a message. Prints
//! what the SDK returns for each case, in the order given.

use base64::prelude::{Engine, BASE64_STANDARD};
use databricks_zerobus_ingest_sdk::{EncodedRecord, ZerobusResult};
use serde_json::{json, Value};

use crate::{out, out_error, Args};

pub async fn run(args: &Args) -> ZerobusResult<()> {
    let cases = std::fs::read(args.get("input")).expect("read input");
    let cases: Vec<Value> = serde_json::from_slice(&cases).expect("cases");
    for case in &cases {
        match send(args, case).await {
            Ok(()) => out(json!({"error": "", "kind": ""})),
            Err(e) => out_error(&e),
        }
    }
    Ok(())
}

async fn send(args: &Args, case: &Value) -> ZerobusResult<()> {
    let sdk = args.sdk(args.get("url"))?;
    let builder = sdk
        .stream_builder()
        .table(case["table"].as_str().expect("table"))
        .oauth(args.get("client_id"), args.get("client_secret"));
    let message = case["message"].as_str();
    let mut stream = match message {
        Some(name) => builder.compiled_proto(args.message(name)).build().await?,
        None => builder.json().build().await?,
    };
    for r in case["records"].as_array().into_iter().flatten() {
        let record = match (r["size"].as_u64(), r.as_str()) {
            // A record of so many bytes, which need not go through a file.
            (Some(n), _) => EncodedRecord::Json(format!(
                r#"{{"id": 1, "text": "{}"}}"#,
                "x".repeat(n as usize)
            )),
            (_, Some(s)) if message.is_some() => {
                EncodedRecord::Proto(BASE64_STANDARD.decode(s).expect("base64"))
            }
            (_, s) => EncodedRecord::Json(s.expect("a record is text").to_string()),
        };
        stream.ingest_record_offset(record).await?;
    }
    stream.flush().await?;
    stream.close().await
}
