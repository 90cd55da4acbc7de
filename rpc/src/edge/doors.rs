//! Which endpoint answers what.

use axum::Router;

use super::endpoint::Serves;
use super::front::{Front, Grpc};

/// Everything that can be answered; an endpoint gets its part.
#[derive(Debug)]
pub(crate) struct Doors {
    grpc: Grpc,
    pages: Router,
    probes: Router,
}

impl Doors {
    /// `grpc` answers calls, `pages` everything else; `probes` are those of the pages that say how the server is.
    pub(crate) fn new(grpc: Grpc, pages: Router, probes: Router) -> Doors {
        Doors { grpc, pages, probes }
    }

    /// What answers at an endpoint that serves this.
    pub(super) fn front(&self, serves: Serves) -> Front {
        match serves {
            Serves::Everything => Front::new(Some(self.grpc.clone()), self.pages.clone()),
            Serves::Grpc => Front::new(Some(self.grpc.clone()), Router::new()),
            Serves::Pages => Front::new(None, self.pages.clone()),
            Serves::Probes => Front::new(None, self.probes.clone()),
        }
    }
}
