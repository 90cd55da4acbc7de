//! A server under the name of etcd, told what to do as etcd is: by a configuration file, and by a start script's flags.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::page::ask;

const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is gone when this is.
struct Running {
    child: Child,
    log: std::path::PathBuf,
}

impl Running {
    /// Starts the program under the name `etcd`, in a directory.
    fn start(directory: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Running {
        let program = directory.join("etcd");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sternpost"), &program).expect("a link");
        let log = directory.join("log");
        let file = std::fs::File::create(&log).expect("a file");
        let mut command = Command::new(&program);
        command.args(arguments).envs(variables.iter().copied()).current_dir(directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        Running { child: command.spawn().expect("it starts"), log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("a log")
    }

    /// Waits until it listens, and returns where.
    async fn url(&mut self) -> String {
        let begun = Instant::now();
        loop {
            let log = self.log();
            let address = log.split_once("listening").and_then(|(_, after)| after.split_once("http://127.0.0.1:"));
            if let Some((_, after)) = address {
                let port: String = after.chars().take_while(char::is_ascii_digit).collect();
                return format!("http://127.0.0.1:{port}");
            }
            let ended = self.child.try_wait().expect("it is ours");
            assert!(ended.is_none() && begun.elapsed() < PATIENCE, "{ended:?}\n{log}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Asks it to end, and expects that it does so in order.
    fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it is ours");
        let status = self.child.wait().expect("it is ours");
        assert!(status.success(), "{status}\n{}", self.log());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if it has ended, as it should have.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[tokio::test]
async fn a_configuration_file_is_all_that_counts() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = "name: filed\ndata-dir: here\nlisten-client-urls: http://127.0.0.1:0\nlog-format: json\n\
                advertise-client-urls: http://a:1\nquota-backend-bytes: 12345678\nsnapshot-count: 10000\n\
                initial-cluster: filed=http://127.0.0.1:2380\nwatch-progress-notify-interval: 5000000000\n\
                peer-transport-security:\n  client-cert-auth: true\n  cert-file: /p\n";
    std::fs::write(directory.path().join("conf"), text).expect("a file");
    let variables = [("ETCD_CONFIG_FILE", "conf"), ("ETCD_NAME", "other")];
    let mut server = Running::start(directory.path(), &["--data-dir=there"], &variables);
    let url = server.url().await;
    assert_eq!(ask(&url, "GET", "/readyz").await, (200, "ok\n".to_owned()));
    let (_, page) = ask(&url, "GET", "/metrics").await;
    assert!(page.contains("\netcd_server_quota_backend_bytes 12345678\n"), "{page}");
    let log = server.log();
    assert!(log.contains("ignored beside the configuration file conf: --data-dir, ETCD_NAME"), "{log}");
    let inert = "accepted, without effect: --peer-cert-file, --peer-client-cert-auth, --snapshot-count";
    assert_eq!(log.matches(inert).count(), 1, "{log}");
    assert!(log.contains("\"name\":\"filed\"") && log.contains("progress_interval=5s"), "{log}");
    server.stop();
    assert!(directory.path().join("here/base.redb").exists() && !directory.path().join("there").exists());
}

#[tokio::test]
async fn the_flags_of_a_start_script_for_etcd_will_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let flags = [
        "--name=node",
        "-data-dir=d",
        "--listen-client-urls=http://127.0.0.1:0",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=node=http://127.0.0.1:2380",
        "--snapshot-count",
        "10000",
        "--experimental-initial-corrupt-check=true",
        "--experimental-watch-progress-notify-interval=5s",
        "--feature-gates=InitialCorruptCheck=true",
    ];
    let variables = [("ETCD_UNSUPPORTED_ARCH", "arm64"), ("ETCD_QUOTA_BACKEND_BYTES", "-1")];
    let mut server = Running::start(directory.path(), &flags, &variables);
    let url = server.url().await;
    let (status, version) = ask(&url, "GET", "/version").await;
    assert!(status == 200 && version.contains("\"etcdserver\":\"3.7."), "{version}");
    let (_, page) = ask(&url, "GET", "/metrics").await;
    assert!(page.contains("\netcd_server_quota_backend_bytes -1\n"), "{page}");
    let log = server.log();
    assert_eq!(log.matches("accepted, without effect").count(), 1, "{log}");
    assert!(log.contains("environment variables that name no flag: ETCD_UNSUPPORTED_ARCH"), "{log}");
    server.stop();
}
