//! Sends the rows of a JSON lines file: JSON or protobuf, singles or batches.

use std::time::Duration;

use databricks_zerobus_ingest_sdk::{
    message_descriptor, EncodedRecord, MessageDescriptor, ZerobusResult,
};
use prost::Message;
use prost_reflect::DynamicMessage;
use serde_json::json;

use crate::{out, Args};

pub async fn run(args: &Args) -> ZerobusResult<()> {
    let text = std::fs::read_to_string(args.get("input")).expect("read input");
    let (proto, single) = (args.get("format") == "proto", args.get("mode") == "single");
    let sdk = args.sdk(args.get("url"))?;
    let mut builder = sdk
        .stream_builder()
        .table(args.get("table"))
        .oauth(args.get("client_id"), args.get("client_secret"));
    let records: Vec<EncodedRecord>;
    if proto {
        let descriptor = args.message(args.get("message"));
        let dynamic = message_descriptor(&descriptor)?;
        records = text
            .lines()
            .map(|line| EncodedRecord::Proto(encode(&dynamic, line)))
            .collect();
        // Both ways to name a message are taken.
        builder = if single {
            builder.compiled_proto(descriptor)
        } else {
            builder.dynamic_proto(dynamic)
        };
    } else {
        records = text
            .lines()
            .map(|line| EncodedRecord::Json(line.to_string()))
            .collect();
        builder = builder.json();
    }
    let mut stream = builder.build().await?;
    let batch = if single {
        1
    } else {
        args.get("batch").parse().expect("batch=")
    };
    let pause = Duration::from_secs_f64(args.get_or("pause", "0").parse().expect("pause="));
    for (i, chunk) in records.chunks(batch).enumerate() {
        if single {
            stream.ingest_record_offset(chunk[0].clone()).await?;
        } else {
            stream.ingest_records_offset(chunk.iter().cloned()).await?;
        }
        if !pause.is_zero() {
            out(json!({"progress": i}));
            tokio::time::sleep(pause).await;
        }
    }
    stream.flush().await?;
    stream.close().await?;
    out(json!({"sent": records.len()}));
    Ok(())
}

fn encode(message: &MessageDescriptor, line: &str) -> Vec<u8> {
    let mut json = serde_json::Deserializer::from_str(line);
    DynamicMessage::deserialize(message.clone(), &mut json)
        .expect("a row as the message has it")
        .encode_to_vec()
}
