//! A stream against a keyspace's end that the test plays.

use std::sync::Mutex;

use storage::{Revision, WatchId, WatchSpec};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::*;
use crate::convert::Answer;
use crate::pb::etcdserverpb::watch_request::RequestUnion;

/// A keyspace's end that answers each command at once and keeps what is not taken.
#[derive(Default)]
struct Played {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    ready: Vec<WatchMessage>,
    behind: VecDeque<WatchMessage>,
    failing: Option<Error>,
    created: i64,
}

impl Played {
    fn push(&self, message: WatchMessage) {
        self.state.lock().expect("not poisoned").ready.push(message);
        self.changed.notify_one();
    }

    fn waiting(&self) -> usize {
        self.state.lock().expect("not poisoned").ready.len()
    }

    fn progress(revision: i64) -> WatchMessage {
        WatchMessage::Progress { id: None, revision: Revision(revision) }
    }
}

impl Source for Played {
    fn create(&self, _: WatchSpec) {
        let id = {
            let mut state = self.state.lock().expect("not poisoned");
            state.created += 1;
            WatchId(state.created - 1)
        };
        self.push(WatchMessage::Created { id, revision: Revision(1) });
    }

    fn cancel(&self, id: WatchId) {
        self.push(WatchMessage::Canceled { id, revision: Revision(1) });
    }

    fn request_progress(&self) {
        self.push(Played::progress(1));
    }

    fn tick(&self) {
        self.push(Played::progress(77));
    }

    fn take(&self) -> Vec<WatchMessage> {
        std::mem::take(&mut self.state.lock().expect("not poisoned").ready)
    }

    fn is_behind(&self) -> bool {
        let state = self.state.lock().expect("not poisoned");
        !state.behind.is_empty() || state.failing.is_some()
    }

    fn catch_up(&self) -> Result<(), Error> {
        let mut state = self.state.lock().expect("not poisoned");
        if let Some(error) = state.failing.take() {
            return Err(error);
        }
        let chunk = state.behind.pop_front();
        state.ready.extend(chunk);
        Ok(())
    }

    async fn changed(&self) {
        while self.waiting() == 0 && !self.is_behind() {
            self.changed.notified().await;
        }
    }
}

/// A running stream with all its ends.
struct Bench {
    source: Arc<Played>,
    requests: mpsc::Sender<Result<pb::WatchRequest, Status>>,
    replies: mpsc::Receiver<Reply>,
    stop: oneshot::Sender<()>,
    connection: JoinHandle<()>,
}

/// The room for replies on the bench.
const ROOM: usize = 4;

/// The period of progress where a test does not want any.
const NEVER: Duration = Duration::from_secs(1 << 20);

fn bench(progress: Duration) -> Bench {
    let source = Arc::new(Played::default());
    let (requests, receiver) = mpsc::channel(1);
    let (sender, replies) = mpsc::channel(ROOM);
    let (stop, stopped) = oneshot::channel::<()>();
    let session = Session::new(Answer { header: pb::ResponseHeader::default(), fragment_bytes: 1 << 20 });
    let stopping = async move {
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let requested = ReceiverStream::new(receiver);
    let running = WatchLoop::new(Arc::clone(&source), requested, session, progress, stopping);
    Bench { source, requests, replies, stop, connection: tokio::spawn(connection(running.answers(), sender)) }
}

/// As a connection does: asks for an answer while there is room for it, and drops the stream when the client leaves.
async fn connection(answers: impl Stream<Item = Reply>, replies: mpsc::Sender<Reply>) {
    let mut answers = std::pin::pin!(answers);
    while let Ok(room) = replies.reserve().await {
        tokio::select! {
            answer = answers.next() => match answer {
                Some(answer) => room.send(answer),
                None => return,
            },
            () = replies.closed() => return,
        }
    }
}

impl Bench {
    async fn ask(&self, union: RequestUnion) {
        let request = pb::WatchRequest { request_union: Some(union) };
        self.requests.send(Ok(request)).await.expect("the stream listens");
    }

    async fn create(&self) {
        self.ask(RequestUnion::CreateRequest(pb::WatchCreateRequest::default())).await;
    }

    async fn answer(&mut self) -> pb::WatchResponse {
        self.replies.recv().await.expect("the stream is open").expect("an answer")
    }

    async fn last_word(&mut self) -> (Code, String) {
        let refusal = self.replies.recv().await.expect("a last word").expect_err("not an answer");
        assert!(self.replies.recv().await.is_none(), "nothing follows");
        (refusal.code(), refusal.message().to_owned())
    }
}

fn revision(response: &pb::WatchResponse) -> i64 {
    response.header.map_or(0, |header| header.revision)
}

fn stopped() -> (Code, String) {
    (Code::Unavailable, "etcdserver: server stopped".to_owned())
}

#[tokio::test]
async fn commands_are_answered_in_order() {
    let mut bench = bench(NEVER);
    bench.create().await;
    bench.create().await;
    bench.ask(RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id: 0 })).await;
    bench.ask(RequestUnion::ProgressRequest(pb::WatchProgressRequest {})).await;
    let mut found = Vec::new();
    for _ in 0..4 {
        let answer = bench.answer().await;
        found.push((answer.watch_id, answer.created, answer.canceled));
    }
    assert_eq!(found, [(0, true, false), (1, true, false), (0, false, true), (-1, false, false)]);
}

#[tokio::test]
async fn ten_thousand_watches_share_a_stream() {
    const WATCHES: i64 = 10_000;
    let mut bench = bench(NEVER);
    for id in 0..WATCHES {
        bench.create().await;
        assert_eq!(bench.answer().await.watch_id, id);
    }
    for id in (0..WATCHES).map(WatchId) {
        bench.source.push(WatchMessage::Progress { id: Some(id), revision: Revision(2) });
    }
    for id in 0..WATCHES {
        assert_eq!(bench.answer().await.watch_id, id);
    }
}

#[tokio::test]
async fn messages_go_on_after_the_client_closed_its_side() {
    let mut bench = bench(NEVER);
    bench.create().await;
    assert!(bench.answer().await.created);
    let (closed, _) = mpsc::channel(1);
    bench.requests = closed;
    tokio::task::yield_now().await;
    bench.source.push(Played::progress(5));
    assert_eq!(revision(&bench.answer().await), 5);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_not_served_ahead() {
    let mut bench = bench(NEVER);
    for revision in 1..=100 {
        bench.source.push(Played::progress(revision));
        tokio::task::yield_now().await;
    }
    // Commands wait in the request's own channel: nothing is asked of the stream.
    let mut accepted = 0;
    while timeout(Duration::from_millis(200), bench.create()).await.is_ok() {
        accepted += 1;
        assert!(accepted < 1000, "commands are accepted without end");
    }
    assert!(accepted < 10, "{accepted}");
    let taken = 100 - bench.source.waiting();
    assert!(taken <= 2 * ROOM, "{taken} taken ahead");
    // Reading sets everything free again, in order.
    let mut revisions = Vec::new();
    for _ in 0..100 {
        revisions.push(revision(&bench.answer().await));
    }
    assert_eq!(revisions, (1..=100).collect::<Vec<i64>>());
    for id in 0..accepted {
        assert_eq!(bench.answer().await.watch_id, id);
    }
}

#[tokio::test]
async fn watches_that_are_behind_are_read_for_chunk_by_chunk() {
    let mut bench = bench(NEVER);
    bench.source.state.lock().expect("not poisoned").behind = (1..=50).map(Played::progress).collect();
    bench.source.changed.notify_one();
    for expected in 1..=50 {
        assert_eq!(revision(&bench.answer().await), expected);
    }
}

#[tokio::test]
async fn an_error_while_catching_up_ends_the_stream() {
    let mut bench = bench(NEVER);
    bench.source.state.lock().expect("not poisoned").failing = Some(Error::corrupt("base", "a test"));
    bench.source.changed.notify_one();
    assert_eq!(bench.last_word().await, (Code::DataLoss, "etcdserver: corrupt cluster".to_owned()));
}

#[tokio::test]
async fn the_end_of_the_keyspace_comes_after_what_it_still_said() {
    let mut bench = bench(NEVER);
    for message in [Played::progress(1), Played::progress(2), WatchMessage::Ended] {
        bench.source.state.lock().expect("not poisoned").ready.push(message);
    }
    bench.source.changed.notify_one();
    assert_eq!(revision(&bench.answer().await), 1);
    assert_eq!(revision(&bench.answer().await), 2);
    assert_eq!(bench.last_word().await, stopped());
}

#[tokio::test]
async fn a_stopping_server_ends_the_stream() {
    let mut bench = bench(NEVER);
    let (stop, _) = oneshot::channel();
    std::mem::replace(&mut bench.stop, stop).send(()).expect("the stream listens");
    assert_eq!(bench.last_word().await, stopped());
}

#[tokio::test]
async fn the_keyspaces_end_is_released_when_the_client_leaves() {
    let Bench { connection, replies, requests, stop, source } = bench(NEVER);
    drop(replies);
    timeout(Duration::from_secs(10), connection).await.expect("it ends").expect("without a panic");
    assert_eq!(Arc::strong_count(&source), 1);
    drop((requests, stop));
}

#[tokio::test]
async fn a_request_that_cannot_be_read_ends_the_stream_with_its_status() {
    let mut bench = bench(NEVER);
    bench.requests.send(Err(status::unreadable("a test"))).await.expect("the stream listens");
    assert_eq!(bench.last_word().await, (Code::Internal, "grpc: error unmarshalling request: a test".to_owned()));
}

#[tokio::test]
async fn progress_ticks_come_with_the_period() {
    let begin = Instant::now();
    let mut bench = bench(PROGRESS_MIN);
    assert_eq!(revision(&bench.answer().await), 77);
    assert!(begin.elapsed() >= PROGRESS_MIN);
}

#[tokio::test]
async fn a_stream_that_always_has_something_to_say_hears_commands_and_the_end() {
    /// A keyspace that says more whenever it is asked.
    struct Endless(Mutex<Vec<WatchId>>);
    impl Source for Endless {
        fn create(&self, _: WatchSpec) {}
        fn cancel(&self, id: WatchId) {
            self.0.lock().expect("not poisoned").push(id);
        }
        fn request_progress(&self) {}
        fn tick(&self) {}
        fn take(&self) -> Vec<WatchMessage> {
            vec![Played::progress(1); 3]
        }
        fn is_behind(&self) -> bool {
            false
        }
        fn catch_up(&self) -> Result<(), Error> {
            Ok(())
        }
        async fn changed(&self) {}
    }
    let source = Arc::new(Endless(Mutex::default()));
    let (requests, receiver) = mpsc::channel(1000);
    let (stop, stopped) = oneshot::channel::<()>();
    let session = Session::new(Answer { header: pb::ResponseHeader::default(), fragment_bytes: 1 << 20 });
    let stopping = async move { stopped.await.expect("told") };
    let running =
        WatchLoop::new(Arc::clone(&source), ReceiverStream::new(receiver), session, NEVER, stopping).answers();
    let mut running = std::pin::pin!(running);
    for watch_id in 0..500 {
        let union = RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id });
        requests.try_send(Ok(pb::WatchRequest { request_union: Some(union) })).expect("room");
    }
    // Four takes for 500 commands, with the answers of each between them.
    for _ in 0..10 {
        assert_eq!(revision(&running.next().await.expect("open").expect("an answer")), 1);
    }
    let canceled = source.0.lock().expect("not poisoned").clone();
    assert_eq!(canceled, (0..500).map(WatchId).collect::<Vec<WatchId>>());
    stop.send(()).expect("the stream listens");
    let rest: Vec<Reply> = running.collect().await;
    assert!(rest.len() <= 3, "{} answers after the end", rest.len());
    assert_eq!(rest.last().and_then(|last| last.as_ref().err()).map(Status::code), Some(Code::Unavailable));
}
