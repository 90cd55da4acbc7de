//! Locks and elections, which this server does not keep yet.

use std::pin::Pin;

use futures_util::Stream;
use tonic::Status;

use super::unsupported::service;

/// The service `v3lockpb.Lock`.
#[derive(Debug)]
pub(crate) struct LockService;

/// The service `v3electionpb.Election`.
#[derive(Debug)]
pub(crate) struct ElectionService;

mod lock {
    use super::{LockService, service};
    use crate::pb::v3lockpb::{self as pb, lock_server::Lock};

    service! {
        impl Lock for LockService {}
        unsupported {
            "Lock" lock(LockRequest) -> pb::LockResponse;
            "Unlock" unlock(UnlockRequest) -> pb::UnlockResponse;
        }
    }
}

mod election {
    use super::{ElectionService, Pin, Status, Stream, service};
    use crate::pb::v3electionpb::{self as pb, election_server::Election};

    service! {
        impl Election for ElectionService {
            type ObserveStream = Pin<Box<dyn Stream<Item = Result<pb::LeaderResponse, Status>> + Send>>;
        }
        unsupported {
            "Campaign" campaign(CampaignRequest) -> pb::CampaignResponse;
            "Proclaim" proclaim(ProclaimRequest) -> pb::ProclaimResponse;
            "Leader" leader(LeaderRequest) -> pb::LeaderResponse;
            "Observe" observe(LeaderRequest) -> Self::ObserveStream;
            "Resign" resign(ResignRequest) -> pb::ResignResponse;
        }
    }
}
