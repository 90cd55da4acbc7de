//! Leases and alarms: from the wire and back.

use storage::{Alarm, AlarmKind, LeaseId, MemberId};

use crate::pb::etcdserverpb as pb;

/// The id asked for, if any, and the TTL that applies: a short one is raised without a word.
pub(crate) fn lease_grant(request: &pb::LeaseGrantRequest, ttl_min: i64) -> (Option<LeaseId>, i64) {
    let id = (request.id != 0).then_some(LeaseId(request.id));
    (id, request.ttl.max(ttl_min))
}

/// The alarm that a request names; `None` for no kind and for kinds that do not exist here.
pub(crate) fn alarm(request: &pb::AlarmRequest) -> Option<Alarm> {
    let kind = match request.alarm() {
        pb::AlarmType::Nospace => AlarmKind::NoSpace,
        pb::AlarmType::Corrupt => AlarmKind::Corrupt,
        pb::AlarmType::None => return None,
    };
    Some(Alarm { member: MemberId(request.member_id), kind })
}

/// True if an alarm is among those that a request to list asks for, whoever raised it.
pub(crate) fn alarm_filter(request: &pb::AlarmRequest, alarm: &Alarm) -> bool {
    request.alarm == pb::AlarmType::None as i32 || request.alarm == alarm_member(alarm).alarm
}

/// An alarm on the wire.
pub(crate) fn alarm_member(alarm: &Alarm) -> pb::AlarmMember {
    pb::AlarmMember { member_id: alarm.member.0, alarm: alarm_type(alarm.kind) as i32 }
}

/// An alarm as `Status` lists it: the text form of the message, which leaves zeros out.
pub(crate) fn alarm_text(alarm: &Alarm) -> String {
    let kind = alarm_type(alarm.kind).as_str_name();
    match alarm.member {
        MemberId(0) => format!("alarm:{kind}"),
        MemberId(id) => format!("memberID:{id} alarm:{kind}"),
    }
}

fn alarm_type(kind: AlarmKind) -> pb::AlarmType {
    match kind {
        AlarmKind::NoSpace => pb::AlarmType::Nospace,
        AlarmKind::Corrupt => pb::AlarmType::Corrupt,
    }
}
