//! The official Rust SDK as a peer: `peer ingest|send|bench key=value…` prints JSON lines, as the other peers do.

mod bench;
mod ingest;
mod send;

use std::collections::HashMap;

use databricks_zerobus_ingest_sdk::{ZerobusResult, ZerobusSdk};
use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet};
use serde_json::json;

/// The words key=value.
pub struct Args(HashMap<String, String>);

impl Args {
    pub fn get(&self, key: &str) -> &str {
        self.0
            .get(key)
            .unwrap_or_else(|| panic!("argument {key}= is missing"))
    }

    pub fn get_or<'a>(&'a self, key: &str, otherwise: &'a str) -> &'a str {
        self.0.get(key).map_or(otherwise, |v| v)
    }

    /// The SDK for endpoint, which is often the workspace's own URL.
    pub fn sdk(&self, endpoint: &str) -> ZerobusResult<ZerobusSdk> {
        ZerobusSdk::builder()
            .endpoint(endpoint)
            .unity_catalog_url(self.get("url"))
            .build()
    }

    /// A message of the compiled descriptor set.
    pub fn message(&self, name: &str) -> DescriptorProto {
        let set = std::fs::read(self.get("descriptors")).expect("read descriptors");
        let set = FileDescriptorSet::decode(set.as_slice()).expect("decode descriptors");
        let mut messages = set.file.into_iter().flat_map(|f| f.message_type);
        messages
            .find(|m| m.name() == name)
            .unwrap_or_else(|| panic!("no message {name}"))
    }
}

/// Prints an answer.
pub fn out(answer: serde_json::Value) {
    println!("{answer}");
}

/// Prints what the SDK returned: its text, and the name of its variant.
pub fn out_error(e: &databricks_zerobus_ingest_sdk::ZerobusError) {
    let debug = format!("{e:?}");
    let kind = debug.split(|c: char| !c.is_alphanumeric()).next();
    out(json!({"error": e.to_string(), "kind": kind}));
}

#[tokio::main]
async fn main() {
    let mut words = std::env::args().skip(1);
    let verb = words.next().unwrap_or_default();
    let args = Args(
        words
            .filter_map(|w| w.split_once('=').map(|(k, v)| (k.into(), v.into())))
            .collect(),
    );
    let done = match verb.as_str() {
        "ingest" => ingest::run(&args).await,
        "send" => send::run(&args).await,
        "bench" => bench::run(&args).await,
        _ => panic!("unknown verb {verb:?}: ingest, send or bench"),
    };
    if let Err(e) = done {
        out_error(&e);
    }
}
