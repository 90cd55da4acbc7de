//! What clients asked, what they were told, and whether the history that a watch recorded accounts for all of it.

use std::collections::{BTreeMap, HashMap};

use crate::model::expected::{Expected, same};
use crate::model::op::{Reply, Request};
use crate::model::state::Model;
use crate::model::wire::*;

/// A request's name: the client, and its number there.
pub type Name = (usize, u64);

/// Everything that was asked, and what was answered: nothing if the connection broke before an answer came.
#[derive(Default)]
pub struct Ledger {
    asked: HashMap<Name, (Request, Option<Reply>)>,
    /// Which request deletes a key that no other request deletes.
    deleters: HashMap<Blob, Name>,
    /// Reads: the revision of the answer, the key and what it was.
    reads: Vec<(i64, Blob, Option<KeyValue>)>,
    /// Leases that were granted for certain, and whether their end was asked for.
    pub leases: BTreeMap<i64, bool>,
}

/// A value that names the request that writes it.
pub fn value(name: Name) -> Blob {
    format!("{}-{}", name.0, name.1).into_bytes()
}

fn parse(value: &[u8]) -> Option<Name> {
    let (client, number) = std::str::from_utf8(value).ok()?.split_once('-')?;
    Some((client.parse().ok()?, number.parse().ok()?))
}

impl Ledger {
    /// Writes down a request before it is sent; `deletes` is a key that only this request deletes.
    pub fn ask(&mut self, name: Name, request: Request, deletes: Option<Blob>) {
        self.deleters.extend(deletes.map(|key| (key, name)));
        assert!(self.asked.insert(name, (request, None)).is_none(), "{name:?} is asked twice");
    }

    /// Writes down an answer.
    pub fn answer(&mut self, name: Name, reply: Reply) {
        self.asked.get_mut(&name).expect("it was asked").1 = Some(reply);
    }

    /// Writes down a read.
    pub fn read(&mut self, revision: i64, key: Blob, found: Option<KeyValue>) {
        self.reads.push((revision, key, found));
    }

    /// How many requests were answered, and how many were not.
    pub fn counts(&self) -> (usize, usize) {
        let answered = self.asked.values().filter(|(_, reply)| reply.is_some()).count();
        (answered, self.asked.len() - answered)
    }

    /// Runs the recorded history through the model: each revision is one request's, in full, with the answer that was given; every
    /// answered write is in it; every read saw its revision. Returns the model at the end.
    pub fn verify(&self, record: &[(i64, Vec<Event>)]) -> Result<Model, String> {
        let mut model = Model::new();
        model.leases = self.leases.keys().map(|id| (*id, 10_000)).collect();
        let mut open: HashMap<Name, &(Request, Option<Reply>)> =
            self.asked.iter().map(|(name, asked)| (*name, asked)).collect();
        for (revision, events) in record {
            let name = self.owner(events).ok_or_else(|| format!("revision {revision} is nobody's: {events:?}"))?;
            let (request, reply) = open
                .remove(&name)
                .ok_or_else(|| format!("revision {revision}: {name:?} happened twice or never was"))?;
            let expected = model.apply(request);
            same("revision", &model.revision, revision).map_err(|wrong| format!("{name:?}: {wrong}"))?;
            let made = model.events(&[0], &[0], *revision).pop().map(|(_, events)| events).unwrap_or_default();
            let plain = made.into_iter().map(|event| Event { prev_kv: None, ..event }).collect::<Vec<_>>();
            same("events", &plain, events).map_err(|wrong| format!("revision {revision}, {request:?}: {wrong}"))?;
            if let Some(reply) = reply {
                Expected::check(&expected, &Ok(reply.clone())).map_err(|wrong| format!("{request:?}: {wrong}"))?;
            }
        }
        let lost = open.iter().find(|(_, (_, reply))| reply.as_ref().is_some_and(changed_something));
        if let Some((name, asked)) = lost {
            return Err(format!("{name:?} was acknowledged and is lost: {asked:?}"));
        }
        for (revision, key, found) in &self.reads {
            same("read", &model.get(key, *revision), found).map_err(|wrong| format!("at {revision}: {wrong}"))?;
        }
        Ok(model)
    }

    fn owner(&self, events: &[Event]) -> Option<Name> {
        let written =
            events.iter().filter(|event| event.r#type == 0).find_map(|event| parse(&event.kv.as_ref()?.value));
        written.or_else(|| events.iter().find_map(|event| self.deleters.get(&event.kv.as_ref()?.key).copied()))
    }
}

fn changed_something(reply: &Reply) -> bool {
    match reply {
        Reply::Put(_) => true,
        Reply::DeleteRange(reply) => reply.deleted > 0,
        Reply::Txn(reply) => reply.succeeded,
        Reply::Done(_) => true,
        _ => false,
    }
}
