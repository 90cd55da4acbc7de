//! What goes on beside the requests that are measured: compaction at intervals, and readers that are in no hurry.

use std::time::Duration;

use tokio::task::JoinSet;
use tonic::Code;

use crate::drive::{KvClient, connect_kv};
use crate::keys::{PREFIX, end};
use crate::pb::etcdserverpb as pb;
use crate::{Common, Failure};

/// How long a slow reader takes over one answer.
const SLOW: Duration = Duration::from_secs(1);

/// The tasks beside a run; they end when it is dropped.
pub(crate) struct Beside {
    tasks: JoinSet<Result<(), Failure>>,
}

impl Beside {
    /// Begins what `common` asks for.
    pub(crate) async fn begin(common: &Common) -> Result<Beside, Failure> {
        let mut tasks = JoinSet::new();
        if common.compact_every > 0 {
            tasks.spawn(compact(connect_kv(common).await?, Duration::from_secs(common.compact_every)));
        }
        for number in 0..common.slow_readers {
            let kv = connect_kv(common).await?;
            if number % 2 == 0 {
                tasks.spawn(stream_slowly(kv))
            } else {
                tasks.spawn(page_slowly(kv))
            };
        }
        Ok(Beside { tasks })
    }

    /// Ends it. Errors: what ended a task before.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        while let Some(ended) = self.tasks.try_join_next() {
            ended??;
        }
        Ok(())
    }
}

/// As an apiserver compacts: to the revision that it saw an interval ago.
async fn compact(mut kv: KvClient, interval: Duration) -> Result<(), Failure> {
    let mut seen = revision(&mut kv).await?;
    loop {
        tokio::time::sleep(interval).await;
        let now = revision(&mut kv).await?;
        match kv.compact(pb::CompactionRequest { revision: seen, ..Default::default() }).await {
            Ok(_) => {}
            // Nothing has changed since.
            Err(status) if status.code() == Code::OutOfRange => {}
            Err(status) => return Err(status.into()),
        }
        seen = now;
    }
}

/// Compacts to the newest revision, and waits for the sweep if that is asked for.
pub(crate) async fn compact_now(common: &Common, physical: bool) -> Result<(), Failure> {
    let mut kv = connect_kv(common).await?;
    let revision = revision(&mut kv).await?;
    match kv.compact(pb::CompactionRequest { revision, physical }).await {
        Ok(_) => println!("compacted to revision {revision}"),
        Err(status) if status.code() == Code::OutOfRange => println!("revision {revision} was compacted before"),
        Err(status) => return Err(status.into()),
    }
    Ok(())
}

async fn revision(kv: &mut KvClient) -> Result<i64, Failure> {
    let reply = kv.range(pb::RangeRequest { key: PREFIX.into(), ..Default::default() }).await?;
    Ok(reply.into_inner().header.map_or(0, |header| header.revision))
}

/// Streams of everything, of which a piece is taken now and then; a compacted one is begun anew.
async fn stream_slowly(mut kv: KvClient) -> Result<(), Failure> {
    loop {
        let everything = pb::RangeRequest { key: PREFIX.into(), range_end: end(), ..Default::default() };
        let mut pieces = kv.range_stream(everything).await?.into_inner();
        loop {
            tokio::time::sleep(SLOW).await;
            match pieces.message().await {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(status) if status.code() == Code::OutOfRange => break,
                Err(status) => return Err(status.into()),
            }
        }
    }
}

/// Lists in pages pinned to the revision of the first; a compacted one is begun anew.
async fn page_slowly(mut kv: KvClient) -> Result<(), Failure> {
    let (mut key, mut revision) = (Vec::from(PREFIX), 0);
    loop {
        let page = pb::RangeRequest { key, range_end: end(), limit: 500, revision, ..Default::default() };
        let next = match kv.range(page).await {
            Ok(reply) => next_page(&reply.into_inner(), revision),
            Err(status) if status.code() == Code::OutOfRange => None,
            Err(status) => return Err(status.into()),
        };
        (key, revision) = next.unwrap_or_else(|| (Vec::from(PREFIX), 0));
        tokio::time::sleep(SLOW).await;
    }
}

fn next_page(reply: &pb::RangeResponse, pinned: i64) -> Option<(Vec<u8>, i64)> {
    let (last, header) = (reply.kvs.last()?, reply.header.as_ref()?);
    let revision = if pinned == 0 { header.revision } else { pinned };
    reply.more.then(|| ([last.key.as_slice(), &[0]].concat(), revision))
}
