//! Between the wire and the keyspace: the only place that knows both kinds of types, and where what needs no state is checked.

mod lease;
mod listing;
mod operation;
mod range;
mod reply;
mod size;
mod txn;
mod watch;

pub(crate) use lease::{alarm, alarm_filter, alarm_member, alarm_text, lease_grant};
pub(crate) use listing::{entries_len, piece_head, range_head, range_tail, take_entries};
pub(crate) use operation::{delete_range, put};
pub(crate) use range::{range, range_stream};
pub(crate) use reply::{delete_reply, put_reply, range_reply, record, txn_reply};
pub(crate) use size::Envelope;
pub(crate) use txn::txn;
pub(crate) use watch::{Answer, Command, watch_command};

#[cfg(test)]
mod tests;
