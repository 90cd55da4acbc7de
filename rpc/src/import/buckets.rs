//! etcd's buckets beside the one with the keys: what they say that matters here.

use prost::Message;
use storage::{ImportedLease, LeaseId, Revision};

use super::bolt::{Bolt, Bucket, Entry};
use super::record;
use crate::pb::etcdserverpb::{AlarmMember, AlarmType};

/// The newest storage version that is known: major and minor.
const STORAGE_VERSION: (u64, u64) = (3, 7);

/// Everything but the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The compacted revision as of etcd's next start; -1 if nothing was ever compacted.
    pub(super) compacted: Revision,
    /// Every lease.
    pub(super) leases: Vec<ImportedLease>,
    /// Authentication is in force.
    pub(super) auth: bool,
    /// How many users there are.
    pub(super) users: u64,
    /// How many roles there are.
    pub(super) roles: u64,
    /// A NOSPACE alarm is raised.
    pub(super) no_space: bool,
    /// A CORRUPT alarm is raised.
    pub(super) corrupt: bool,
}

/// A lease as etcd stores it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Lease {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
    /// Seconds.
    #[prost(int64, tag = "2")]
    pub(super) ttl: i64,
    /// Seconds at the last checkpoint; 0 if there was none.
    #[prost(int64, tag = "3")]
    pub(super) remaining: i64,
}

/// The bucket of the records, and what the others say. Errors: damage; a version that is not known.
pub(super) fn read(bolt: &Bolt) -> Result<(Bucket, Facts), String> {
    let find = |name: &str| bolt.find(&bolt.root(), name.as_bytes());
    let (Some(records), Some(meta)) = (find("key")?, find("meta")?) else {
        return Err("no database of etcd: its buckets key and meta are missing".to_owned());
    };
    let mut facts = read_meta(bolt, &meta)?;
    if let Some(bucket) = find("lease")? {
        each(bolt, &bucket, |entry| {
            facts.leases.push(read_lease(entry)?);
            Ok(())
        })?;
    }
    if let Some(bucket) = find("auth")? {
        each(bolt, &bucket, |entry| {
            facts.auth |= entry.key == "authEnabled" && entry.value()?.as_ref() == [1];
            Ok(())
        })?;
    }
    if let Some(bucket) = find("authUsers")? {
        facts.users = count(bolt, &bucket)?;
    }
    if let Some(bucket) = find("authRoles")? {
        facts.roles = count(bolt, &bucket)?;
    }
    if let Some(bucket) = find("alarm")? {
        each(bolt, &bucket, |entry| read_alarm(entry, &mut facts))?;
    }
    Ok((records, facts))
}

fn read_meta(bolt: &Bolt, bucket: &Bucket) -> Result<Facts, String> {
    let (mut finished, mut scheduled) = (None, None);
    each(bolt, bucket, |entry| {
        match entry.key.as_ref() {
            b"storageVersion" => check_version(entry.value()?)?,
            b"finishedCompactRev" => finished = Some(read_revision(entry)?),
            b"scheduledCompactRev" => scheduled = Some(read_revision(entry)?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(Facts { compacted: compacted(finished, scheduled), ..Facts::default() })
}

/// A compaction that was begun is finished by etcd's next start; one to revision 0 changes nothing and is not.
fn compacted(finished: Option<i64>, scheduled: Option<i64>) -> Revision {
    let finished = finished.unwrap_or(-1);
    Revision(scheduled.filter(|scheduled| *scheduled > 0).map_or(finished, |scheduled| scheduled.max(finished)))
}

fn check_version(value: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(value);
    let mut numbers = text.split('.').map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) <= STORAGE_VERSION => Ok(()),
        (Some(Ok(_)), Some(Ok(_))) => {
            let (major, minor) = STORAGE_VERSION;
            Err(format!("it has etcd's storage version {text}, this release reads versions up to {major}.{minor}"))
        }
        _ => Err(format!("storage version {text:?} is no version")),
    }
}

fn read_revision(entry: &Entry) -> Result<i64, String> {
    record::read_place(entry.value()?).map(|place| place.main.0).map_err(|error| damaged(entry, &error))
}

fn read_lease(entry: &Entry) -> Result<ImportedLease, String> {
    let lease = Lease::decode(entry.value()?.clone()).map_err(|error| damaged(entry, &format!("a lease: {error}")))?;
    if entry.key.as_ref() != lease.id.to_be_bytes() {
        return Err(damaged(entry, &format!("lease {:016x} under another id", lease.id)));
    }
    let ttl = lease.ttl.max(1);
    // Where etcd keeps no checkpoints, a start gives a lease its whole TTL.
    let remaining = if lease.remaining > 0 { lease.remaining.min(ttl) } else { ttl };
    Ok(ImportedLease { id: LeaseId(lease.id), ttl, remaining })
}

fn read_alarm(entry: &Entry, facts: &mut Facts) -> Result<(), String> {
    let alarm =
        AlarmMember::decode(entry.key.clone()).map_err(|error| damaged(entry, &format!("an alarm: {error}")))?;
    match AlarmType::try_from(alarm.alarm) {
        Ok(AlarmType::None) => {}
        Ok(AlarmType::Nospace) => facts.no_space = true,
        Ok(AlarmType::Corrupt) => facts.corrupt = true,
        Err(_) => return Err(damaged(entry, &format!("alarm {} is unknown", alarm.alarm))),
    }
    Ok(())
}

pub(super) fn damaged(entry: &Entry, what: &str) -> String {
    format!("page {}: {what}", entry.page())
}

fn count(bolt: &Bolt, bucket: &Bucket) -> Result<u64, String> {
    let mut count = 0;
    each(bolt, bucket, |_| {
        count += 1;
        Ok(())
    })?;
    Ok(count)
}

/// Each entry of a bucket, up to the first error.
fn each(bolt: &Bolt, bucket: &Bucket, mut visit: impl FnMut(&Entry) -> Result<(), String>) -> Result<(), String> {
    let mut entries = bolt.entries(bucket);
    while let Some(entry) = entries.next()? {
        visit(&entry)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduled_compaction_counts_as_done() {
        for (finished, scheduled, expected) in [
            (None, None, -1),
            (Some(0), None, 0),
            (None, Some(0), -1),
            (Some(5), Some(5), 5),
            (Some(5), Some(9), 9),
            (None, Some(9), 9),
            (Some(9), Some(5), 9),
        ] {
            assert_eq!(compacted(finished, scheduled), Revision(expected), "{finished:?}, {scheduled:?}");
        }
    }

    #[test]
    fn versions_up_to_the_known_one_are_read() {
        for known in ["3.6.0", "3.7.0", "3.7.12", "2.9.9"] {
            assert_eq!(check_version(known.as_bytes()), Ok(()), "{known}");
        }
        for newer in ["3.8.0", "4.0.0"] {
            let refused = check_version(newer.as_bytes()).expect_err(newer);
            assert!(refused.contains(newer) && refused.contains("3.7"), "{refused}");
        }
        assert!(check_version(b"new").expect_err("new").contains("no version"));
    }
}
