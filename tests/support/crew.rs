//! Clients and watches at work on a server through all its ends, and the judgement on what they were told.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::task::JoinHandle;

use super::client::unary;
use super::load::{Load, Writer};
use super::recorder::Recorder;
use super::server::Server;
use crate::model::wire::*;
use crate::model::wire_more::*;

type Record = Vec<(i64, Vec<Event>)>;

/// Those at work.
pub struct Crew {
    pub load: Arc<Load>,
    seed: u64,
    upto: Arc<AtomicI64>,
    watches: Vec<JoinHandle<Record>>,
    clients: Vec<JoinHandle<()>>,
}

/// What they did.
pub struct Account {
    pub answered: u64,
    pub unknown: u64,
    pub revisions: i64,
}

impl Crew {
    /// So many clients, and watches over everything, begin to work on a fresh server.
    pub fn start(server: &Server, clients: usize, watches: usize, seed: u64) -> Crew {
        let load = Load::new(server.url(), watches);
        let upto = Arc::new(AtomicI64::new(i64::MAX));
        let watches = (0..watches)
            .map(|index| {
                let (recorder, upto) = (Recorder::new(&load, index, 2), upto.clone());
                tokio::spawn(async move { recorder.run(&upto).await })
            })
            .collect();
        let clients = (0..clients).map(|client| tokio::spawn(Writer::new(&load, client, seed).run())).collect();
        Crew { load, seed, upto, watches, clients }
    }

    /// Ends the work; panics if anything that was acknowledged is lost, anything happened twice, or the watches differ.
    pub async fn finish(self, server: &Server) -> Account {
        let Crew { load, seed, upto, watches, clients } = self;
        load.stop.store(true, Ordering::SeqCst);
        for client in clients {
            client.await.expect("a client ends in order");
        }
        let everything = RangeRequest { key: vec![0], range_end: vec![0], ..Default::default() };
        let now: RangeResponse =
            unary(&server.channel(), "/etcdserverpb.KV/Range", everything).await.expect("the server answers");
        let current = now.header.as_ref().expect("a header").revision;
        upto.store(current, Ordering::SeqCst);
        let mut records = Vec::new();
        for watch in watches {
            records.push(watch.await.expect("a watch ends in order"));
        }
        let verified = load.ledger.lock().unwrap().verify(&records[0]);
        let model = verified.unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        assert!(records.iter().all(|record| *record == records[0]), "seed {seed}: the watches differ");
        assert_eq!(model.revision, current, "seed {seed}");
        assert_eq!(model.scan(&[0], &[0], current), now.kvs, "seed {seed}: what is there now");
        leases_are_there(&load, server, seed).await;
        let (answered, unknown) = load.ledger.lock().unwrap().counts();
        Account { answered: answered as u64, unknown: unknown as u64, revisions: current }
    }
}

/// Leases that were granted and not asked to end are there.
async fn leases_are_there(load: &Load, server: &Server, seed: u64) {
    let reply: LeaseLeasesResponse =
        unary(&server.channel(), "/etcdserverpb.Lease/LeaseLeases", Empty {}).await.expect("the server answers");
    let there: Vec<i64> = reply.leases.iter().map(|lease| lease.id).collect();
    let ledger = load.ledger.lock().unwrap();
    let lost: Vec<i64> =
        ledger.leases.iter().filter(|(id, ends)| !**ends && !there.contains(id)).map(|(id, _)| *id).collect();
    assert!(lost.is_empty(), "seed {seed}: leases {lost:?} are gone");
    assert!(!there.is_empty(), "seed {seed}");
}
