//! Fetches a snapshot from a running server into a file that is either complete or not there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::uri::PathAndQuery;
use storage::fs::{File, FileSystem, OpenMode, RealFs};
use storage::{SnapshotFile, SnapshotInfo};
use tonic::{Request, Status, Streaming};

use crate::codec::EtcdCodec;
use crate::dial::{Trust, dial};
use crate::pb::etcdserverpb as pb;

const METHOD: &str = "/etcdserverpb.Maintenance/Snapshot";

/// Writes the snapshot beside `file`, makes it durable, checks all of it, and only then gives it the name.
pub(crate) fn snapshot(endpoint: &str, trust: &Trust, file: &Path) -> Result<SnapshotInfo, String> {
    let part = beside(file);
    let done = fetch(endpoint, trust, &part).and_then(|()| settle(&part, file));
    if done.is_err() {
        // Perhaps it was never begun.
        drop(RealFs.remove(&part));
    }
    done
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn settle(part: &Path, file: &Path) -> Result<SnapshotInfo, String> {
    let info = *SnapshotFile::open(&RealFs, part, false).map_err(|error| error.to_string())?.info();
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let renamed = RealFs.rename(part, file).and_then(|()| RealFs.sync_dir(directory));
    renamed.map_err(|error| format!("renaming {}: {error}", part.display()))?;
    Ok(info)
}

fn fetch(endpoint: &str, trust: &Trust, part: &Path) -> Result<(), String> {
    let writing = |error| format!("writing {}: {error}", part.display());
    let leftover = RealFs.metadata(part).map_err(writing)?.is_some();
    if leftover {
        RealFs.remove(part).map_err(writing)?;
    }
    let file = RealFs.open(part, OpenMode::CreateNew).map_err(writing)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("cannot start: {error}"))?.block_on(receive(endpoint, trust, &file, part))?;
    file.sync().map_err(writing)
}

async fn receive(endpoint: &str, trust: &Trust, file: &Arc<dyn File>, part: &Path) -> Result<(), String> {
    let failed = |status: Status| format!("{endpoint}: {}", status.message());
    let mut messages = open(endpoint, trust).await?;
    let mut offset = 0;
    while let Some(message) = messages.message().await.map_err(failed)? {
        file.write_at(offset, &message.blob).map_err(|error| format!("writing {}: {error}", part.display()))?;
        offset += message.blob.len() as u64;
    }
    Ok(())
}

async fn open(endpoint: &str, trust: &Trust) -> Result<Streaming<pb::SnapshotResponse>, String> {
    let channel = dial(endpoint, trust).await?;
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.map_err(|error| format!("{endpoint}: {error}"))?;
    let codec = EtcdCodec::<pb::SnapshotRequest, pb::SnapshotResponse>::default();
    let request = Request::new(pb::SnapshotRequest {});
    let opened = grpc.server_streaming(request, PathAndQuery::from_static(METHOD), codec).await;
    opened.map(|opened| opened.into_inner()).map_err(|status| format!("{endpoint}: {}", status.message()))
}
