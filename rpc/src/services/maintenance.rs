//! What operators ask for: status, alarms, hashes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::Stream;
use tonic::{Request, Response, Status};

use super::context::{Context, TERM};
use super::snapshot;
use super::unsupported::service;
use crate::convert::{self, Envelope};
use crate::hashkv;
use crate::metrics::Timed;
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::alarm_request::AlarmAction;
use crate::pb::etcdserverpb::maintenance_server::Maintenance;
use crate::{shrink, status};

/// The service `etcdserverpb.Maintenance`.
#[derive(Debug)]
pub(crate) struct MaintenanceService {
    context: Arc<Context>,
}

impl MaintenanceService {
    /// The service over a keyspace.
    pub(crate) fn new(context: Arc<Context>) -> MaintenanceService {
        MaintenanceService { context }
    }

    fn status_now(&self) -> pb::StatusResponse {
        let status = self.context.keyspace.status();
        let config = &self.context.config;
        pb::StatusResponse {
            header: self.context.header(status.revision),
            version: config.version.to_owned(),
            // Never 0: clients divide by it.
            db_size: signed(status.size_bytes).max(1),
            leader: self.context.member.0,
            raft_index: status.applied.0,
            raft_term: TERM,
            raft_applied_index: status.applied.0,
            errors: status.alarms.iter().map(convert::alarm_text).collect(),
            db_size_in_use: signed(status.used_bytes),
            is_learner: false,
            storage_version: config.storage_version.to_owned(),
            db_size_quota: config.quota_bytes,
            downgrade_info: Some(pb::DowngradeInfo::default()),
        }
    }

    fn alarms(&self, request: &pb::AlarmRequest) -> pb::AlarmResponse {
        let status = self.context.keyspace.status();
        let listed = status.alarms.iter().filter(|alarm| convert::alarm_filter(request, alarm));
        let alarms = listed.map(convert::alarm_member).collect();
        pb::AlarmResponse { header: self.context.header(status.revision), alarms }
    }

    /// Raises or clears one alarm; answers with it if it is, or was, raised.
    async fn set_alarm(&self, request: &pb::AlarmRequest, raised: bool) -> Result<pb::AlarmResponse, Status> {
        self.context.check_size(Envelope::Alarm, request)?;
        let Some(alarm) = convert::alarm(request) else {
            return Ok(pb::AlarmResponse { header: self.context.header_now(), alarms: Vec::new() });
        };
        let pending = self.context.keyspace.set_alarm(alarm, raised);
        let (revision, touched) =
            self.context.timed(Timed::Alarm, pending).await.map_err(|error| status::of(&error))?;
        let alarms = touched.then(|| convert::alarm_member(&alarm)).into_iter().collect();
        Ok(pb::AlarmResponse { header: self.context.header(revision), alarms })
    }

    async fn hash_at(&self, revision: i64) -> Result<pb::HashKvResponse, Status> {
        let begun = Instant::now();
        let hashed = self.context.blocking(move |context| hashkv::hash(&context.keyspace, revision)).await?;
        self.context.config.metrics.durations.hashed(begun.elapsed());
        let hashed = hashed.ok_or_else(status::hash_disturbed)?;
        Ok(pb::HashKvResponse {
            header: self.context.header_now(),
            hash: hashed.hash,
            compact_revision: hashed.compacted.0,
            hash_revision: hashed.revision.0,
        })
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

service! {
    impl Maintenance for MaintenanceService {
        type SnapshotStream = Pin<Box<dyn Stream<Item = Result<pb::SnapshotResponse, Status>> + Send>>;

        async fn status(&self, _: Request<pb::StatusRequest>) -> Result<Response<pb::StatusResponse>, Status> {
            Ok(Response::new(self.status_now()))
        }

        async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Result<Response<pb::AlarmResponse>, Status> {
            let request = request.into_inner();
            let answer = match AlarmAction::try_from(request.action) {
                Ok(AlarmAction::Get) => self.alarms(&request),
                Ok(AlarmAction::Activate) => self.set_alarm(&request, true).await?,
                Ok(AlarmAction::Deactivate) => self.set_alarm(&request, false).await?,
                Err(_) => return Err(status::unknown_alarm_action()),
            };
            Ok(Response::new(answer))
        }

        async fn defragment(
            &self,
            _: Request<pb::DefragmentRequest>,
        ) -> Result<Response<pb::DefragmentResponse>, Status> {
            let shrunk = shrink::rewrite(&self.context.keyspace, &self.context.config.metrics, "asked for").await;
            shrunk.map_err(|error| status::of(&error))?;
            // Like etcd's, this answer has no header.
            Ok(Response::new(pb::DefragmentResponse::default()))
        }

        async fn hash_kv(&self, request: Request<pb::HashKvRequest>) -> Result<Response<pb::HashKvResponse>, Status> {
            Ok(Response::new(self.hash_at(request.into_inner().revision).await?))
        }

        async fn snapshot(&self, _: Request<pb::SnapshotRequest>) -> Result<Response<Self::SnapshotStream>, Status> {
            Ok(Response::new(Box::pin(snapshot::messages(Arc::clone(&self.context)))))
        }
    }
    unsupported {
        "Hash" hash(HashRequest) -> pb::HashResponse;
        "MoveLeader" move_leader(MoveLeaderRequest) -> pb::MoveLeaderResponse;
        "Downgrade" downgrade(DowngradeRequest) -> pb::DowngradeResponse;
    }
}
