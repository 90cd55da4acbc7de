//! What the wire says and what the keyspace is asked, and in which order faults are found.

use super::reply::event;
use super::watch::split;
use super::*;
use bytes::Bytes;
use prost::Message;
use storage::*;

use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::request_op::Request;
use crate::pb::etcdserverpb::watch_request::RequestUnion;
use crate::pb::mvccpb;

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn key(text: &'static str) -> Key {
    Key::new(text.as_bytes()).expect("not empty")
}

fn op(request: Request) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

fn put_op(name: &'static str) -> pb::RequestOp {
    op(Request::RequestPut(pb::PutRequest { key: bytes(name), ..Default::default() }))
}

fn txn_op(success: Vec<pb::RequestOp>) -> pb::RequestOp {
    op(Request::RequestTxn(pb::TxnRequest { success, ..Default::default() }))
}

#[test]
fn a_read_needs_a_key_before_it_needs_an_order() {
    let request = pb::RangeRequest { sort_order: 9, ..Default::default() };
    assert_eq!(range(request.clone()), Err(Error::KeyNotProvided));
    assert_eq!(range(pb::RangeRequest { key: bytes("a"), ..request }), Err(Error::InvalidSortOption));
    let request = pb::RangeRequest { key: bytes("a"), sort_target: -1, ..Default::default() };
    assert_eq!(range(request), Err(Error::InvalidSortOption));
}

#[test]
fn only_a_plain_read_takes_a_negative_revision_for_the_current_one() {
    for (revision, plain, within) in
        [(0, At::Latest, At::Latest), (-3, At::Latest, At::Revision(-3)), (7, At::Revision(7), At::Revision(7))]
    {
        let request = pb::RangeRequest { key: bytes("a"), revision, ..Default::default() };
        assert_eq!(range(request.clone()).expect("valid").at, plain);
        let request = pb::TxnRequest { success: vec![op(Request::RequestRange(request))], ..Default::default() };
        let txn = txn(request, 1).expect("valid");
        let Some(Op::Range(read)) = txn.success.first() else { panic!("{txn:?}") };
        assert_eq!(read.at, within);
    }
}

#[test]
fn the_end_of_a_range_is_one_key_a_bound_or_nothing() {
    for (end, expected) in [("", RangeEnd::SingleKey), ("\0", RangeEnd::Open), ("z", RangeEnd::Before(bytes("z")))] {
        let request = pb::RangeRequest { key: bytes("a"), range_end: bytes(end), ..Default::default() };
        assert_eq!(range(request).expect("valid").range, KeyRange { start: key("a"), end: expected });
    }
}

#[test]
fn the_count_goes_before_the_keys() {
    for (count_only, keys_only, expected) in
        [(true, true, Content::CountOnly), (false, true, Content::KeysOnly), (false, false, Content::Full)]
    {
        let request = pb::RangeRequest { key: bytes("a"), count_only, keys_only, ..Default::default() };
        assert_eq!(range(request).expect("valid").content, expected);
    }
}

#[test]
fn a_streamed_read_is_in_key_order_and_unfiltered() {
    let check = |request: pb::RangeRequest, expected: Option<&str>| {
        let request = pb::RangeRequest { key: bytes("a"), ..request };
        let found = range_stream(request.clone()).err().map(|status| (status.code(), status.message().to_owned()));
        let expected = expected.map(|text| (tonic::Code::Unimplemented, text.to_owned()));
        assert_eq!(found, expected, "{request:?}");
    };
    let sorts = Some("RangeStream does not support custom sort orders");
    let filters = Some("RangeStream does not support revision filters");
    check(pb::RangeRequest::default(), None);
    check(pb::RangeRequest { sort_order: 1, ..Default::default() }, None);
    check(pb::RangeRequest { sort_target: 3, ..Default::default() }, None);
    let by_key = range_stream(pb::RangeRequest { key: bytes("a"), sort_target: 3, ..Default::default() });
    assert_eq!(by_key.expect("valid").target, SortTarget::Key);
    check(pb::RangeRequest { sort_order: 2, ..Default::default() }, sorts);
    check(pb::RangeRequest { sort_order: 1, sort_target: 3, ..Default::default() }, sorts);
    check(pb::RangeRequest { min_mod_revision: 1, ..Default::default() }, filters);
    check(pb::RangeRequest { max_create_revision: 1, ..Default::default() }, filters);
    assert_eq!(range_stream(pb::RangeRequest::default()).expect_err("no key").code(), tonic::Code::InvalidArgument);
}

#[test]
fn a_put_is_checked_for_key_value_lease_in_this_order() {
    let all_wrong =
        pb::PutRequest { value: bytes("v"), lease: 1, ignore_value: true, ignore_lease: true, ..Default::default() };
    assert_eq!(put(all_wrong.clone()), Err(Error::KeyNotProvided));
    let with_key = pb::PutRequest { key: bytes("k"), ..all_wrong };
    assert_eq!(put(with_key.clone()), Err(Error::ValueProvided));
    let without_value = pb::PutRequest { value: Bytes::new(), ..with_key };
    assert_eq!(put(without_value.clone()), Err(Error::LeaseProvided));
    let right = put(pb::PutRequest { lease: 0, ..without_value }).expect("valid");
    assert_eq!((right.value, right.lease), (PutValue::Keep, PutLease::Keep));
    let plain = put(pb::PutRequest { key: bytes("k"), lease: -4, prev_kv: true, ..Default::default() }).expect("valid");
    assert_eq!(
        (plain.value, plain.lease, plain.prev_kv),
        (PutValue::Set(Bytes::new()), PutLease::Attach(LeaseId(-4)), true)
    );
    let detached = put(pb::PutRequest { key: bytes("k"), ..Default::default() }).expect("valid");
    assert_eq!(detached.lease, PutLease::Detach);
    assert_eq!(delete_range(pb::DeleteRangeRequest::default()), Err(Error::KeyNotProvided));
}

#[test]
fn each_list_of_a_transaction_has_the_whole_limit() {
    let names = ["a", "b", "c"];
    let compare = pb::Compare { key: bytes("a"), ..Default::default() };
    let full = pb::TxnRequest {
        compare: vec![compare.clone(); 3],
        success: names.into_iter().map(put_op).collect(),
        failure: names.into_iter().map(put_op).collect(),
    };
    assert!(txn(full.clone(), 3).is_ok());
    assert_eq!(txn(full, 2), Err(Error::TooManyOps { found: 3, limit: 2 }));
}

#[test]
fn nested_transactions_share_what_the_longest_list_left() {
    let nested = |depth: usize| (1..depth).fold(vec![], |ops, _| vec![txn_op(ops)]);
    let request = |depth| pb::TxnRequest { success: nested(depth), ..Default::default() };
    assert!(txn(request(4), 3).is_ok());
    assert_eq!(
        txn(pb::TxnRequest { success: nested(5), ..Default::default() }, 3),
        Err(Error::TooManyOps { found: 1, limit: 0 })
    );
    let wide =
        pb::TxnRequest { success: vec![txn_op(vec![put_op("a"), put_op("b")]), put_op("c")], ..Default::default() };
    assert_eq!(txn(wide.clone(), 3), Err(Error::TooManyOps { found: 2, limit: 1 }));
    assert!(txn(wide, 4).is_ok());
}

#[test]
fn faults_of_a_transaction_are_found_in_order() {
    let no_key = || pb::Compare::default();
    let empty = pb::RequestOp::default;
    let twice = || vec![put_op("a"), put_op("a")];
    let check = |request: pb::TxnRequest, expected: Error| assert_eq!(txn(request, 3), Err(expected));
    let too_many = vec![empty(), empty(), empty(), empty()];
    check(
        pb::TxnRequest { compare: vec![no_key()], failure: too_many, ..Default::default() },
        Error::TooManyOps { found: 4, limit: 3 },
    );
    check(
        pb::TxnRequest { compare: vec![no_key()], success: vec![empty()], ..Default::default() },
        Error::KeyNotProvided,
    );
    check(
        pb::TxnRequest { success: vec![empty()], failure: vec![put_op("")], ..Default::default() },
        Error::KeyNotFound,
    );
    check(
        pb::TxnRequest { success: vec![put_op("")], failure: vec![empty()], ..Default::default() },
        Error::KeyNotProvided,
    );
    check(pb::TxnRequest { success: twice(), failure: vec![empty()], ..Default::default() }, Error::KeyNotFound);
    check(
        pb::TxnRequest { success: twice(), failure: vec![txn_op(vec![put_op("")])], ..Default::default() },
        Error::KeyNotProvided,
    );
    // That a key is put twice is for the keyspace to see, which looks at the whole transaction.
    assert!(txn(pb::TxnRequest { failure: twice(), ..Default::default() }, 3).is_ok());
}

#[test]
fn a_compare_without_its_own_kind_of_number_compares_with_zero() {
    use pb::compare::TargetUnion;
    let check = |target: i32, given: Option<TargetUnion>, expected: CompareTarget| {
        let compare = pb::Compare { target, key: bytes("a"), target_union: given, ..Default::default() };
        let txn = txn(pb::TxnRequest { compare: vec![compare], ..Default::default() }, 1).expect("valid");
        assert_eq!(txn.compares.first().map(|compare| compare.target.clone()), Some(expected));
    };
    check(0, Some(TargetUnion::Version(4)), CompareTarget::Version(4));
    check(0, Some(TargetUnion::Lease(4)), CompareTarget::Version(0));
    check(1, Some(TargetUnion::CreateRevision(4)), CompareTarget::Create(4));
    check(2, Some(TargetUnion::ModRevision(4)), CompareTarget::Mod(4));
    check(2, None, CompareTarget::Mod(0));
    check(3, Some(TargetUnion::Value(bytes("v"))), CompareTarget::Value(bytes("v")));
    check(3, Some(TargetUnion::Version(4)), CompareTarget::Value(Bytes::new()));
    check(4, Some(TargetUnion::Lease(4)), CompareTarget::Lease(4));
    check(5, Some(TargetUnion::Version(4)), CompareTarget::Unknown);
}

#[test]
fn nesting_at_the_limit_is_converted_and_dropped_on_a_small_stack() {
    let depth = crate::codec::DEPTH_MAX;
    let test = move || {
        let success = (1..depth).fold(vec![], |ops, _| vec![txn_op(ops)]);
        let converted = txn(pb::TxnRequest { success, ..Default::default() }, depth).expect("valid");
        assert_eq!(converted.success.len(), 1);
        let reply = || TxnReply { revision: Revision(2), succeeded: true, responses: vec![] };
        let deep = (1..depth).fold(reply(), |inner, _| TxnReply { responses: vec![OpReply::Txn(inner)], ..reply() });
        let encoded = txn_reply(None, deep).encode_to_vec();
        assert!(encoded.len() > depth * 4);
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(test).expect("a thread starts");
    thread.join().expect("the test passes");
}

#[test]
fn headers_within_a_transaction_carry_the_revision_alone() {
    let inner = TxnReply { revision: Revision(5), succeeded: false, responses: vec![] };
    let put = PutReply { revision: Revision(5), prev_kv: None };
    let reply =
        TxnReply { revision: Revision(5), succeeded: true, responses: vec![OpReply::Put(put), OpReply::Txn(inner)] };
    let outer = pb::ResponseHeader { cluster_id: 1, member_id: 2, revision: 5, raft_term: 3 };
    let response = txn_reply(Some(outer), reply);
    assert_eq!(response.header, Some(outer));
    let headers: Vec<_> = response.responses.into_iter().map(|op| op.response).collect();
    let put = pb::PutResponse { header: Some(pb::ResponseHeader { revision: 5, ..Default::default() }), prev_kv: None };
    let inner = pb::TxnResponse { header: Some(pb::ResponseHeader::default()), ..Default::default() };
    use pb::response_op::Response;
    assert_eq!(headers, [Some(Response::ResponsePut(put)), Some(Response::ResponseTxn(inner))]);
}

#[test]
fn a_lease_is_raised_to_the_minimum() {
    let grant = |ttl, id| lease_grant(&pb::LeaseGrantRequest { ttl, id }, 2);
    assert_eq!(grant(-5, 0), (None, 2));
    assert_eq!(grant(9_000_000_000, -7), (Some(LeaseId(-7)), 9_000_000_000));
}

#[test]
fn alarms_are_listed_by_kind_and_written_as_text() {
    let raised = Alarm { member: MemberId(7), kind: AlarmKind::NoSpace };
    let asked = |alarm| pb::AlarmRequest { member_id: 99, alarm, ..Default::default() };
    let listed: Vec<bool> = (0..4).map(|kind| alarm_filter(&asked(kind), &raised)).collect();
    assert_eq!(listed, [true, true, false, false]);
    assert_eq!(alarm(&asked(2)), Some(Alarm { member: MemberId(99), kind: AlarmKind::Corrupt }));
    assert_eq!((alarm(&asked(0)), alarm(&asked(9))), (None, None));
    assert_eq!(alarm_text(&raised), "memberID:7 alarm:NOSPACE");
    assert_eq!(alarm_text(&Alarm { member: MemberId(0), kind: AlarmKind::Corrupt }), "alarm:CORRUPT");
}

#[test]
fn the_envelope_adds_its_header_and_the_length() {
    let request = pb::PutRequest { key: bytes("k"), value: Bytes::from(vec![0; 200]), ..Default::default() };
    let message = 3 + 203;
    assert_eq!(Envelope::Put.size(&request), 14 + 1 + 2 + message);
    assert_eq!(Envelope::check(10, 10), Ok(()));
    assert_eq!(Envelope::check(11, 10), Err(Error::RequestTooLarge { size: 11, limit: 10 }));
}

fn create(request: pb::WatchCreateRequest) -> WatchSpec {
    let union = Some(RequestUnion::CreateRequest(request));
    match watch_command(pb::WatchRequest { request_union: union }) {
        Some(Command::Create { spec, .. }) => spec,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_watch_without_a_key_begins_at_the_lowest_one() {
    let all = create(pb::WatchCreateRequest { range_end: bytes("\0"), ..Default::default() });
    assert_eq!(all.range, KeyRange::all());
    let lowest = create(pb::WatchCreateRequest::default());
    assert_eq!(lowest.range, KeyRange::single(key("\0")));
    assert_eq!((lowest.start, lowest.id), (StartAt::Now, None));
}

#[test]
fn filters_that_nobody_knows_are_ignored() {
    let spec =
        create(pb::WatchCreateRequest { filters: vec![7, 1], start_revision: -1, watch_id: -9, ..Default::default() });
    assert_eq!((spec.no_put, spec.no_delete), (false, true));
    assert_eq!((spec.start, spec.id), (StartAt::Revision(-1), Some(WatchId(-9))));
    assert_eq!(watch_command(pb::WatchRequest { request_union: None }), None);
}

fn change(sub: i64, kind: ChangeKind) -> std::sync::Arc<Change> {
    std::sync::Arc::new(Change { key: bytes("k"), at: RevisionPair { main: Revision(9), sub }, kind })
}

#[test]
fn an_event_is_encoded_once_and_a_deletion_is_key_and_revision() {
    let kind = ChangeKind::Put { create: Revision(3), version: 2, lease: 5, value: bytes("v") };
    let shared =
        Event { change: change(0, ChangeKind::Tombstone), prev: Some(change(0, kind)), wire: Default::default() };
    let first = event(&shared);
    assert_eq!(first.as_ptr(), event(&shared).as_ptr());
    let decoded = mvccpb::Event::decode(first).expect("an event");
    let kv = mvccpb::KeyValue { key: bytes("k"), mod_revision: 9, ..Default::default() };
    let prev = mvccpb::KeyValue { create_revision: 3, version: 2, lease: 5, value: bytes("v"), ..kv.clone() };
    assert_eq!(decoded, mvccpb::Event { r#type: 1, kv: Some(kv), prev_kv: Some(prev) });
}

fn pieces(sizes: &[usize], limit: usize) -> Vec<pb::WatchResponse> {
    let header = Some(pb::ResponseHeader { cluster_id: 1, member_id: 2, revision: 3, raft_term: 4 });
    let events = sizes.iter().map(|size| Bytes::from(vec![7; *size])).collect();
    split(pb::WatchResponse { header, watch_id: 5, events, ..Default::default() }, limit)
}

#[test]
fn long_answers_are_cut_between_events() {
    let check = |sizes: &[usize], limit: usize, expected: &[&[usize]]| {
        let pieces = pieces(sizes, limit);
        let found: Vec<Vec<usize>> = pieces.iter().map(|piece| piece.events.iter().map(Bytes::len).collect()).collect();
        assert_eq!(found, expected, "{sizes:?} by {limit}");
        for (place, piece) in pieces.iter().enumerate() {
            assert_eq!(piece.fragment, place + 1 < pieces.len(), "{sizes:?} by {limit}, piece {place}");
            assert_eq!((piece.watch_id, piece.header.map(|header| header.revision)), (5, Some(3)));
            assert!(piece.events.len() == 1 || piece.encoded_len() < limit, "{sizes:?} by {limit}, piece {place}");
        }
    };
    check(&[10, 10, 10], 1000, &[&[10, 10, 10]]);
    check(&[100, 100, 100], 250, &[&[100, 100], &[100]]);
    check(&[300, 10, 300, 10, 10], 250, &[&[300], &[10], &[300], &[10, 10]]);
    check(&[500], 100, &[&[500]]);
    check(&[10, 10], 1, &[&[10], &[10]]);
}

#[test]
fn an_answer_of_exactly_the_limit_is_cut() {
    let whole = pieces(&[50, 50], usize::MAX);
    let length = whole.iter().map(Message::encoded_len).sum();
    assert_eq!(pieces(&[50, 50], length).len(), 2);
    assert_eq!(pieces(&[50, 50], length + 1).len(), 1);
}
