//! The end of a watch stream that lies in the keyspace, as what drives the stream sees it: so it can be tested without a keyspace.

use std::future::Future;

use storage::{Error, WatchId, WatchMessage, WatchSpec, WatchStream};

/// Watches that share one ordered stream of messages; each method is that of [`WatchStream`].
pub(super) trait Source: Send + Sync + 'static {
    fn create(&self, spec: WatchSpec);
    fn cancel(&self, id: WatchId);
    fn request_progress(&self);
    fn tick(&self);
    fn take(&self) -> Vec<WatchMessage>;
    fn is_behind(&self) -> bool;
    fn catch_up(&self) -> Result<(), Error>;
    fn changed(&self) -> impl Future<Output = ()> + Send;
}

impl Source for WatchStream {
    fn create(&self, spec: WatchSpec) {
        WatchStream::create(self, spec);
    }

    fn cancel(&self, id: WatchId) {
        WatchStream::cancel(self, id);
    }

    fn request_progress(&self) {
        WatchStream::request_progress(self);
    }

    fn tick(&self) {
        WatchStream::tick(self);
    }

    fn take(&self) -> Vec<WatchMessage> {
        WatchStream::take(self)
    }

    fn is_behind(&self) -> bool {
        WatchStream::is_behind(self)
    }

    fn catch_up(&self) -> Result<(), Error> {
        WatchStream::catch_up(self)
    }

    fn changed(&self) -> impl Future<Output = ()> + Send {
        WatchStream::changed(self)
    }
}
