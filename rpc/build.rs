//! Turns the .proto files into messages and server traits, without protoc.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use prost::Message as _;

const FILES: [&str; 5] =
    ["proto/kv.proto", "proto/auth.proto", "proto/rpc.proto", "proto/v3lock.proto", "proto/v3election.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let compiled = protox::compile(FILES, ["proto"])?;
    // Through bytes, because the two crates may name different versions of the descriptor type.
    let mut descriptors = tonic_prost_build::FileDescriptorSet::decode(compiled.encode_to_vec().as_slice())?;
    keep_watch_events_encoded(&mut descriptors)?;
    list_methods(&descriptors)?;
    tonic_prost_build::configure()
        .build_client(false)
        .bytes(".")
        .codec_path("crate::codec::EtcdCodec")
        .compile_fds(descriptors)?;
    Ok(())
}

/// Lets `WatchResponse.events` hold encoded events: on the wire a nested message and bytes are the same, and so one
/// encoding of an event serves every watch that gets it.
fn keep_watch_events_encoded(descriptors: &mut tonic_prost_build::FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    /// `TYPE_BYTES` of the descriptor format.
    const BYTES: i32 = 12;
    let field = descriptors
        .file
        .iter_mut()
        .flat_map(|file| &mut file.message_type)
        .filter(|message| message.name() == "WatchResponse")
        .flat_map(|message| &mut message.field)
        .find(|field| field.name() == "events")
        .ok_or("WatchResponse has no events")?;
    field.r#type = Some(BYTES);
    field.type_name = None;
    Ok(())
}

/// Writes the names of all services and methods as a constant, so that what is routed and what is known cannot differ.
fn list_methods(descriptors: &tonic_prost_build::FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    let mut list = String::from("&[\n");
    for file in &descriptors.file {
        for service in &file.service {
            let methods: Vec<&str> = service.method.iter().map(|method| method.name()).collect();
            writeln!(list, "    (\"{}.{}\", &{methods:?}),", file.package(), service.name())?;
        }
    }
    list.push_str("    (\"grpc.health.v1.Health\", &[\"Check\", \"Watch\"]),\n]\n");
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("methods.rs"), list)?;
    list_calls(descriptors)
}

/// Writes path, service, method and kind of every call as a constant, for whoever counts them.
fn list_calls(descriptors: &tonic_prost_build::FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    let mut calls = vec![
        ("grpc.health.v1.Health".to_owned(), "Check".to_owned(), "unary"),
        ("grpc.health.v1.Health".to_owned(), "Watch".to_owned(), "server_stream"),
    ];
    for file in &descriptors.file {
        for service in &file.service {
            for method in &service.method {
                let kind = match (method.client_streaming(), method.server_streaming()) {
                    (false, false) => "unary",
                    (true, false) => "client_stream",
                    (false, true) => "server_stream",
                    (true, true) => "bidi_stream",
                };
                calls.push((format!("{}.{}", file.package(), service.name()), method.name().to_owned(), kind));
            }
        }
    }
    let mut list = String::from("&[\n");
    for (service, method, kind) in calls {
        let path = format!("/{service}/{method}");
        writeln!(list, "    CallName {{ path: {path:?}, service: {service:?}, method: {method:?}, kind: {kind:?} }},")?;
    }
    list.push_str("]\n");
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("calls.rs"), list)?;
    Ok(())
}
