//! The maintenance thread: it brings frozen parts to base.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::shared::Shared;
use crate::error::Error;
use crate::recent::Part;

/// What the maintenance thread is to do next.
enum Next {
    Flush(Arc<Part>),
    End,
}

/// How long to wait before room is looked for again.
const RETRY: Duration = Duration::from_millis(500);

/// Runs until the keyspace ends.
pub(crate) fn run(shared: &Shared, ended: &dyn Fn() -> bool) {
    loop {
        let next = shared.wait_for(|head| match &head.sources.frozen {
            _ if ended() || shared.failure().is_some() => Some(Next::End),
            Some(part) => Some(Next::Flush(part.clone())),
            None => None,
        });
        let Next::Flush(part) = next else { return };
        match bring(shared, &part) {
            Ok(()) => {}
            Err(Error::NoSpace) => {
                shared.publish(|head| head.out_of_room = true);
                shared.queue.poke();
                std::thread::park_timeout(RETRY);
            }
            Err(error) => return shared.fail(error),
        }
    }
}

/// One durable commit, then readers get the new base and the part is forgotten: both under the lock that views are taken under. A crash before the
/// commit replays the part from the log; after it, the log below is no longer needed.
pub(crate) fn bring(shared: &Shared, part: &Part) -> Result<(), Error> {
    let data = part.read();
    shared.base.reserve(&data)?;
    shared.base.flush(&data)?;
    drop(data);
    let base = shared.base.snapshot()?;
    shared.publish(|head| {
        head.sources.base = base;
        head.sources.frozen = None;
        head.out_of_room = false;
    });
    shared.queue.poke();
    Ok(())
}
