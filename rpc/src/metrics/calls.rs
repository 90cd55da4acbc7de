//! Calls of gRPC methods, counted: begun, ended by code, messages and bytes both ways.

use std::collections::HashMap;
use std::sync::Arc;

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

use super::versions::ClientVersions;
use crate::status::CODE_NAMES;

/// A method, as labels name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallName {
    path: &'static str,
    service: &'static str,
    method: &'static str,
    kind: &'static str,
}

const CALLS: &[CallName] = include!(concat!(env!("OUT_DIR"), "/calls.rs"));

/// The counters of every method, found by its path.
#[derive(Debug)]
pub(crate) struct Calls {
    methods: HashMap<&'static str, Arc<Method>>,
    versions: ClientVersions,
}

/// The counters of a method.
#[derive(Debug)]
pub(crate) struct Method {
    unary: bool,
    started: IntCounter,
    received: IntCounter,
    sent: IntCounter,
    /// By code.
    handled: Vec<IntCounter>,
    bytes_received: IntCounter,
    bytes_sent: IntCounter,
}

/// What a call that nobody waits for any more ends with.
const CANCELLED: usize = 1;
/// What a code that nobody knows counts as.
const UNKNOWN: usize = 2;

impl Calls {
    /// Registers the counters, each at 0.
    pub(super) fn new(registry: &Registry) -> Calls {
        let labels = &["grpc_method", "grpc_service", "grpc_type"];
        let vec = |name: &str, help: &str, labels: &[&str]| {
            let vec = IntCounterVec::new(Opts::new(name, help), labels).expect("a valid name");
            registry.register(Box::new(vec.clone())).expect("a new name");
            vec
        };
        let single = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help).expect("a valid name");
            registry.register(Box::new(counter.clone())).expect("a new name");
            counter
        };
        let started = vec("grpc_server_started_total", "Calls begun.", labels);
        let received = vec("grpc_server_msg_received_total", "Messages received from clients.", labels);
        let sent = vec("grpc_server_msg_sent_total", "Messages sent to clients.", labels);
        let handled = vec(
            "grpc_server_handled_total",
            "Calls ended, by code.",
            &["grpc_code", "grpc_method", "grpc_service", "grpc_type"],
        );
        let bytes_received =
            single("etcd_network_client_grpc_received_bytes_total", "Bytes of messages received from clients.");
        let bytes_sent = single("etcd_network_client_grpc_sent_bytes_total", "Bytes of messages sent to clients.");
        let method = |name: &CallName| {
            let labels = [name.method, name.service, name.kind];
            let with_code = |code: &&str| handled.with_label_values(&[*code, name.method, name.service, name.kind]);
            Arc::new(Method {
                unary: name.kind == "unary",
                started: started.with_label_values(&labels),
                received: received.with_label_values(&labels),
                sent: sent.with_label_values(&labels),
                handled: CODE_NAMES.iter().map(with_code).collect(),
                bytes_received: bytes_received.clone(),
                bytes_sent: bytes_sent.clone(),
            })
        };
        let methods = CALLS.iter().map(|name| (name.path, method(name))).collect();
        Calls { methods, versions: ClientVersions::new(registry) }
    }

    /// A call begins; `None` if nobody knows the method. `version` is what the client says about itself.
    pub(crate) fn begin(&self, path: &str, version: Option<&str>) -> Option<Call> {
        let method = self.methods.get(path)?;
        method.started.inc();
        self.versions.count(version, method.unary);
        Some(Call { method: Arc::clone(method), ended: false })
    }
}

impl Method {
    /// So many messages of so many bytes came from the client.
    pub(crate) fn received(&self, messages: u64, bytes: u64) {
        self.received.inc_by(messages);
        self.bytes_received.inc_by(bytes);
    }

    /// So many messages of so many bytes go to the client.
    pub(crate) fn sent(&self, messages: u64, bytes: u64) {
        self.sent.inc_by(messages);
        self.bytes_sent.inc_by(bytes);
    }
}

/// A call under way; if it is dropped before it has ended, the client has cancelled it.
#[derive(Debug)]
pub(crate) struct Call {
    method: Arc<Method>,
    ended: bool,
}

impl Call {
    /// The counters of its method.
    pub(crate) fn method(&self) -> &Arc<Method> {
        &self.method
    }

    /// The call ended with this code; the first one counts.
    pub(crate) fn end(&mut self, code: Option<usize>) {
        if !std::mem::replace(&mut self.ended, true)
            && let Some(handled) = self.method.handled.get(code.unwrap_or(UNKNOWN)).or(self.method.handled.get(UNKNOWN))
        {
            handled.inc();
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(Some(CANCELLED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::{Encoder, TextEncoder};

    fn page(registry: &Registry) -> String {
        let mut page = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut page).expect("an encoding");
        String::from_utf8(page).expect("text")
    }

    #[track_caller]
    fn check(page: &str, sample: &str) {
        assert!(page.lines().any(|line| line == sample), "{sample} is not in {page}");
    }

    #[test]
    fn a_call_is_counted_when_it_begins_and_when_it_ends() {
        let registry = Registry::new();
        let calls = Calls::new(&registry);
        let put = "grpc_method=\"Put\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"";
        check(&page(&registry), &format!("grpc_server_started_total{{{put}}} 0"));
        let mut call = calls.begin("/etcdserverpb.KV/Put", Some("3.7")).expect("a known method");
        call.method().received(1, 12);
        call.method().sent(1, 30);
        call.end(Some(0));
        call.end(Some(14));
        drop(call);
        drop(calls.begin("/etcdserverpb.KV/Put", None));
        calls.begin("/etcdserverpb.KV/Put", None).expect("a known method").end(Some(99));
        let page = page(&registry);
        check(&page, &format!("grpc_server_started_total{{{put}}} 3"));
        check(&page, &format!("grpc_server_msg_received_total{{{put}}} 1"));
        check(&page, &format!("grpc_server_msg_sent_total{{{put}}} 1"));
        for (code, count) in [("OK", 1), ("Canceled", 1), ("Unknown", 1), ("Unavailable", 0)] {
            check(&page, &format!("grpc_server_handled_total{{grpc_code=\"{code}\",{put}}} {count}"));
        }
        check(&page, "etcd_network_client_grpc_received_bytes_total 12");
        check(&page, "etcd_network_client_grpc_sent_bytes_total 30");
        check(&page, "etcd_server_client_requests_total{client_api_version=\"3.7\",type=\"unary\"} 1");
        check(&page, "etcd_server_client_requests_total{client_api_version=\"unknown\",type=\"unary\"} 2");
    }

    #[test]
    fn every_method_that_is_answered_is_counted() {
        let calls = Calls::new(&Registry::new());
        for (service, methods) in crate::service_set::METHODS {
            for method in *methods {
                assert!(calls.methods.contains_key(format!("/{service}/{method}").as_str()), "{service}/{method}");
            }
        }
        assert!(calls.begin("/etcdserverpb.KV/Nothing", None).is_none());
        let kinds: std::collections::BTreeSet<_> = CALLS.iter().map(|call| call.kind).collect();
        assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["bidi_stream", "server_stream", "unary"]);
    }
}
