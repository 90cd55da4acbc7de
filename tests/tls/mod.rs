//! The real binary with TLS: who is let in, certificates that change under traffic, what each address serves.

#![allow(unreachable_pub, clippy::unwrap_used, reason = "a test that panics has failed")]

mod client;
mod pki;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use client::{Target, channel, page, shown};
use pki::{Authority, Pair, expired};
use tonic::transport::Channel;

use crate::model::wire::*;
use crate::support::client::unary;
use crate::support::server::{Server, free_port};

/// A server that also listens with TLS, and the files that it reads.
struct Secured {
    server: Server,
    authority: Authority,
    target: Target,
}

/// Replaces a file as an operator's tools do: at once.
fn write(path: &Path, content: &str) {
    let part = path.with_extension("part");
    std::fs::write(&part, content).expect("a file");
    std::fs::rename(part, path).expect("it moves");
}

impl Secured {
    /// Prepares one; `flags` may name files in `PKI`.
    fn prepare(flags: &[&str]) -> Secured {
        let authority = Authority::new("authority");
        let mut server = Server::prepare(&[]);
        let port = free_port();
        let secured = |server: Server| Secured { server, authority, target: Target::Port(port) };
        server.listen_too(format!("https://127.0.0.1:{port}"));
        let directory = server.scratch().to_str().expect("text").to_owned();
        for flag in ["--cert-file=PKI/cert", "--key-file=PKI/key"].iter().chain(flags) {
            server.give(&[&flag.replace("PKI", &directory)]);
        }
        let secured = secured(server);
        secured.show(&secured.authority.server());
        write(&secured.file("ca"), &secured.authority.pem);
        write(&secured.file("list"), &secured.authority.revoke(&[7]));
        secured
    }

    async fn start(flags: &[&str]) -> Secured {
        let mut secured = Secured::prepare(flags);
        secured.server.start_again().await;
        secured
    }

    fn file(&self, name: &str) -> PathBuf {
        self.server.scratch().join(name)
    }

    /// Gives the server another certificate.
    fn show(&self, pair: &Pair) {
        write(&self.file("cert"), &pair.cert);
        write(&self.file("key"), &pair.key);
    }

    fn channel(&self, own: Option<&Pair>) -> Channel {
        channel(&self.target, self.authority.client_config(own))
    }

    /// True if a client with this certificate is served.
    async fn serves(&self, own: Option<&Pair>) -> bool {
        get(&self.channel(own)).await.is_ok()
    }

    /// The certificate that a new handshake shows, in DER.
    async fn shown(&self) -> Vec<u8> {
        shown(&self.target, self.authority.client_config(None)).await.expect("a handshake")
    }
}

async fn put(channel: &Channel, value: &[u8]) -> Result<PutResponse, tonic::Status> {
    let put = PutRequest { key: b"a".to_vec(), value: value.to_vec(), ..Default::default() };
    unary(channel, "/etcdserverpb.KV/Put", put).await
}

async fn get(channel: &Channel) -> Result<RangeResponse, tonic::Status> {
    unary(channel, "/etcdserverpb.KV/Range", RangeRequest { key: b"a".to_vec(), ..Default::default() }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_clients_with_a_good_certificate_get_through() {
    let mut secured =
        Secured::prepare(&["--trusted-ca-file=PKI/ca", "--client-cert-auth", "--client-crl-file=PKI/list"]);
    let socket = secured.file("a.sock");
    secured.server.listen_too(format!("unixs://{}", socket.display()));
    secured.server.start_again().await;
    let good = secured.authority.client("alice");
    put(&secured.channel(Some(&good)), b"b").await.expect("a good certificate");
    let over_the_file = channel(&Target::File(socket), secured.authority.client_config(Some(&good)));
    assert_eq!(get(&over_the_file).await.expect("a good certificate").kvs[0].value, b"b");
    assert_eq!(get(&secured.server.channel()).await.expect("the address in the clear goes on").count, 1);
    let foreign = Authority::new("authority").client("alice");
    for (what, bad) in [
        ("none", None),
        ("foreign", Some(foreign)),
        ("expired", Some(secured.authority.issue("alice", &[], expired))),
        ("revoked", Some(secured.authority.numbered("alice", 7))),
    ] {
        assert!(!secured.serves(bad.as_ref()).await, "{what}");
    }
    // A list that grows counts from the next handshake on; so does an authority that is replaced.
    let later = secured.authority.numbered("alice", 8);
    assert!(secured.serves(Some(&later)).await);
    write(&secured.file("list"), &secured.authority.revoke(&[7, 8]));
    assert!(!secured.serves(Some(&later)).await && secured.serves(Some(&good)).await);
    write(&secured.file("ca"), &Authority::new("another").pem);
    assert!(!secured.serves(Some(&good)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_change_under_traffic_and_bad_ones_are_not_taken() {
    let secured = Secured::start(&[]).await;
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (channel, stop, done) = (secured.channel(None), stop.clone(), done.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    put(&channel, b"b").await.expect("a connection goes on");
                    done.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let more = async |count: usize| {
        let (target, deadline) = (done.load(Ordering::SeqCst) + count, Instant::now() + Duration::from_secs(30));
        while done.load(Ordering::SeqCst) < target {
            assert!(Instant::now() < deadline && writers.iter().all(|writer| !writer.is_finished()));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    more(20).await;
    for _ in 0..5 {
        let pair = secured.authority.server();
        secured.show(&pair);
        assert_eq!(secured.shown().await, *pair.der());
        more(20).await;
    }
    let last = secured.shown().await;
    let complaints = || secured.server.log().matches("the old ones stay in use").count();
    assert_eq!(complaints(), 0);
    write(&secured.file("cert"), "damaged");
    for _ in 0..5 {
        assert_eq!(secured.shown().await, last);
    }
    assert_eq!(complaints(), 1, "{}", secured.server.log());
    // Half a change is no change.
    let pair = secured.authority.server();
    write(&secured.file("cert"), &pair.cert);
    assert_eq!(secured.shown().await, last);
    assert_eq!(complaints(), 2, "{}", secured.server.log());
    write(&secured.file("key"), &pair.key);
    assert_eq!(secured.shown().await, *pair.der());
    more(20).await;
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.expect("no request failed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_address_serves_what_its_flag_says() {
    let (metrics, secure_metrics, pages) = (free_port(), free_port(), free_port());
    let metrics_urls = format!("http://127.0.0.1:{metrics},https://127.0.0.1:{secure_metrics}");
    let secured = Secured::start(&["--trusted-ca-file=PKI/ca", "--listen-metrics-urls", &metrics_urls]).await;
    let own = secured.authority.client("prometheus");
    let config = |own| Some(secured.authority.client_config(own));
    let secure = Target::Port(secure_metrics);
    assert_eq!(page(&Target::Port(metrics), "/health", None).await, Some(200));
    assert_eq!(page(&Target::Port(metrics), "/version", None).await, Some(404));
    assert_eq!(page(&secure, "/health", config(Some(&own))).await, Some(200));
    assert_eq!(page(&secure, "/health", config(None)).await, None, "one verifier for all");
    assert_eq!(page(&secured.target, "/version", config(Some(&own))).await, Some(200));
    get(&channel(&secure, secured.authority.client_config(Some(&own)))).await.expect_err("no gRPC there");
    let secured = Secured::start(&["--listen-client-http-urls", &format!("http://127.0.0.1:{pages}")]).await;
    assert_eq!(page(&Target::Port(pages), "/version", None).await, Some(200));
    assert_eq!(page(&secured.target, "/version", Some(secured.authority.client_config(None))).await, Some(404));
    assert!(secured.serves(None).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_its_own_making_outlives_a_restart() {
    let mut server = Server::prepare(&["--auto-tls"]);
    let port = free_port();
    server.listen_too(format!("https://127.0.0.1:{port}"));
    server.start_again().await;
    let made = server.data().join("fixtures/client/cert.pem");
    let pem = std::fs::read_to_string(&made).expect("it was made");
    let trusting = pki::trusting(&pem, None, rustls::ALL_VERSIONS);
    put(&channel(&Target::Port(port), trusting.clone()), b"b").await.expect("it is good for this address");
    server.terminate();
    assert_eq!(server.wait().await.code(), Some(0), "{}", server.log());
    server.start_again().await;
    assert_eq!(get(&channel(&Target::Port(port), trusting)).await.expect("the same certificate").count, 1);
    assert_eq!(std::fs::read_to_string(&made).expect("it is there"), pem);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_saved_over_tls() {
    let secured = Secured::start(&["--trusted-ca-file=PKI/ca", "--client-cert-auth"]).await;
    let own = secured.authority.client("backup");
    put(&secured.channel(Some(&own)), b"b").await.expect("a good certificate");
    write(&secured.file("own.cert"), &own.cert);
    write(&secured.file("own.key"), &own.key);
    let directory = secured.server.scratch().to_owned();
    let url = secured.target.url();
    let save = |arguments: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sternpost"));
        command.args(["snapshot", "save", "saved", "--endpoints", &url]).args(arguments.split_whitespace());
        let output = command.current_dir(&directory).output().expect("it runs");
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).expect("text"))
    };
    for (arguments, part) in [
        ("", "https needs --cacert"),
        ("--cacert missing", "--cacert=missing: No such file"),
        ("--cacert ca", "https://127.0.0.1"),
        ("--cacert ca --cert own.cert --key key", "--key=key: not a key for the certificate"),
    ] {
        let (code, said) = save(arguments);
        assert!(code == Some(1) && said.contains(part) && said.lines().count() == 1, "{arguments}: {said}");
        assert!(!secured.file("saved").exists(), "{arguments}");
    }
    let (code, said) = save("--cacert ca --cert own.cert --key own.key");
    assert!(code == Some(0) && said.contains("revision=2"), "{said}");
    assert!(secured.file("saved").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_with_wrong_files_is_one_line_and_leaves_nothing() {
    for flags in [
        ["--key-file=PKI/missing", "--trusted-ca-file=PKI/ca"],
        ["--client-cert-auth", "--client-crl-file=PKI/list"],
        ["--trusted-ca-file=PKI/ca", "--client-crl-file=PKI/key"],
        ["--auto-tls", "--tls-min-version=TLS1.0"],
    ] {
        let mut secured = Secured::prepare(&flags);
        secured.server.spawn();
        let status = secured.server.wait().await;
        let said = secured.server.log();
        assert_eq!((status.code(), said.lines().count()), (Some(1), 1), "{flags:?}: {said}");
        assert!(said.starts_with("sternpost: --"), "{flags:?}: {said}");
        assert!(!secured.server.data().exists(), "{flags:?}");
    }
}
