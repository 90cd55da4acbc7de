//! The members of the cluster: this one.

use std::sync::Arc;

use storage::Revision;
use tonic::{Request, Response, Status};

use super::context::Context;
use super::unsupported::service;
use crate::pb::etcdserverpb as pb;
use crate::pb::etcdserverpb::cluster_server::Cluster;

/// The service `etcdserverpb.Cluster`.
#[derive(Debug)]
pub(crate) struct ClusterService {
    context: Arc<Context>,
}

impl ClusterService {
    /// The service over a keyspace.
    pub(crate) fn new(context: Arc<Context>) -> ClusterService {
        ClusterService { context }
    }

    fn this_member(&self) -> pb::Member {
        let config = &self.context.config;
        pb::Member {
            id: self.context.member.0,
            name: config.name.clone(),
            peer_ur_ls: config.advertise_peer_urls.clone(),
            client_ur_ls: config.advertise_client_urls.clone(),
            is_learner: false,
        }
    }
}

service! {
    impl Cluster for ClusterService {
        async fn member_list(&self, request: Request<pb::MemberListRequest>) -> Result<Response<pb::MemberListResponse>, Status> {
            if request.into_inner().linearizable {
                self.context.blocking(|context| context.keyspace.barrier()).await?;
            }
            // Membership is not part of the keyspace: its answers carry no revision.
            let header = self.context.header(Revision(0));
            Ok(Response::new(pb::MemberListResponse { header, members: vec![self.this_member()] }))
        }
    }
    unsupported {
        "MemberAdd" member_add(MemberAddRequest) -> pb::MemberAddResponse;
        "MemberRemove" member_remove(MemberRemoveRequest) -> pb::MemberRemoveResponse;
        "MemberUpdate" member_update(MemberUpdateRequest) -> pb::MemberUpdateResponse;
        "MemberPromote" member_promote(MemberPromoteRequest) -> pb::MemberPromoteResponse;
    }
}
