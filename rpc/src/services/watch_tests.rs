//! What a stream answers to what the keyspace says.

use super::*;
use bytes::Bytes;
use storage::{Change, ChangeKind, Error, Event, Revision, RevisionPair};

fn session() -> Session {
    let header = pb::ResponseHeader { cluster_id: 1, member_id: 2, revision: 0, raft_term: 3 };
    Session::new(Answer { header, fragment_bytes: 60 })
}

fn header(revision: i64) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader { cluster_id: 1, member_id: 2, revision, raft_term: 3 })
}

fn answers(session: &mut Session, message: WatchMessage) -> VecDeque<pb::WatchResponse> {
    let mut answers = VecDeque::new();
    session.answer(message, &mut answers);
    answers
}

fn check(session: &mut Session, message: WatchMessage, expected: pb::WatchResponse) {
    assert_eq!(answers(session, message), [expected]);
}

fn events(id: i64) -> WatchMessage {
    let event = |sub| {
        let change = Change {
            key: Bytes::from_static(&[7; 20]),
            at: RevisionPair { main: Revision(9), sub },
            kind: ChangeKind::Tombstone,
        };
        Arc::new(Event { change: Arc::new(change), prev: None, wire: Default::default() })
    };
    WatchMessage::Events { id: WatchId(id), revision: Revision(9), events: [event(0), event(1)].into() }
}

#[test]
fn each_message_has_its_own_shape() {
    let mut session = session();
    let base = |revision, watch_id| pb::WatchResponse { header: header(revision), watch_id, ..Default::default() };
    check(
        &mut session,
        WatchMessage::Created { id: WatchId(4), revision: Revision(9) },
        pb::WatchResponse { created: true, ..base(9, 4) },
    );
    check(
        &mut session,
        WatchMessage::Refused { error: Error::WatchRangeEmpty, revision: Revision(9) },
        pb::WatchResponse {
            created: true,
            canceled: true,
            cancel_reason: "mvcc: watcher range is empty".to_owned(),
            ..base(9, -1)
        },
    );
    check(&mut session, WatchMessage::Progress { id: None, revision: Revision(9) }, base(9, -1));
    check(&mut session, WatchMessage::Progress { id: Some(WatchId(4)), revision: Revision(9) }, base(9, 4));
    check(
        &mut session,
        WatchMessage::Canceled { id: WatchId(4), revision: Revision(9) },
        pb::WatchResponse { canceled: true, ..base(9, 4) },
    );
    check(
        &mut session,
        WatchMessage::Compacted { id: WatchId(4), floor: Revision(7) },
        pb::WatchResponse { canceled: true, compact_revision: 7, ..base(0, 4) },
    );
    assert!(answers(&mut session, WatchMessage::Ended).is_empty());
}

#[test]
fn only_watches_that_asked_for_it_get_long_answers_in_pieces() {
    let mut session = session();
    for fragment in [false, true, true] {
        session.opening(fragment);
    }
    answers(&mut session, WatchMessage::Created { id: WatchId(0), revision: Revision(1) });
    answers(&mut session, WatchMessage::Refused { error: Error::WatchRangeEmpty, revision: Revision(1) });
    answers(&mut session, WatchMessage::Created { id: WatchId(1), revision: Revision(1) });
    assert_eq!(answers(&mut session, events(0)).len(), 1);
    let pieces: Vec<bool> = answers(&mut session, events(1)).iter().map(|piece| piece.fragment).collect();
    assert_eq!(pieces, [true, false]);
    answers(&mut session, WatchMessage::Compacted { id: WatchId(1), floor: Revision(5) });
    assert_eq!(session.fragmenting.len(), 1);
    answers(&mut session, WatchMessage::Canceled { id: WatchId(1), revision: Revision(1) });
    assert_eq!(session.fragmenting.len(), 0);
}
