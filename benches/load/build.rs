//! Turns the server's .proto files into clients and servers, without protoc.

use std::error::Error;

use prost::Message as _;

const DIRECTORY: &str = "../../rpc/proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={DIRECTORY}");
    let compiled = protox::compile(["rpc.proto"], [DIRECTORY])?;
    // Through bytes, because the two crates may name different versions of the descriptor type.
    let descriptors = tonic_prost_build::FileDescriptorSet::decode(compiled.encode_to_vec().as_slice())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
