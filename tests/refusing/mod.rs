//! What the program refuses: directories that are not its own, and command lines.

use std::time::{Duration, Instant};

use crate::model::wire::*;
use crate::support::client::unary;
use crate::support::server::Server;

/// Starts a server that must refuse, and returns what it said.
async fn refusal(mut server: Server) -> String {
    server.spawn();
    let begun = Instant::now();
    let status = server.wait().await;
    assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
    assert!(!status.success(), "it ended with {status}");
    server.log()
}

#[tokio::test]
async fn a_second_server_on_the_same_directory_is_refused_and_harms_nothing() {
    let server = Server::start(&[]).await;
    let said = refusal(Server::prepare(&[]).on(server.data())).await;
    assert!(said.contains(server.data().to_str().expect("a path")), "it names the directory: {said}");
    let put = PutRequest { key: b"a".to_vec(), ..Default::default() };
    let _: PutResponse = unary(&server.channel(), "/etcdserverpb.KV/Put", put).await.expect("the first goes on");
}

#[tokio::test]
async fn a_directory_with_other_things_in_it_is_refused_and_left_alone() {
    let server = Server::prepare(&[]);
    let data = server.scratch().join("foreign");
    std::fs::create_dir(&data).expect("a directory");
    std::fs::write(data.join("letter.txt"), b"not ours").expect("a file");
    let keep = tempfile::TempDir::new().expect("a directory");
    let elsewhere = keep.path().join("foreign");
    std::fs::rename(&data, &elsewhere).expect("it moves");
    refusal(server.on(elsewhere.clone())).await;
    let names: Vec<_> =
        std::fs::read_dir(&elsewhere).expect("it is there").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names, ["letter.txt"]);
    assert_eq!(std::fs::read(elsewhere.join("letter.txt")).expect("it is there"), b"not ours");
}

#[tokio::test]
async fn a_file_in_place_of_the_directory_is_refused() {
    let keep = tempfile::TempDir::new().expect("a directory");
    let file = keep.path().join("data");
    std::fs::write(&file, b"a file").expect("a file");
    let said = refusal(Server::prepare(&[]).on(file.clone())).await;
    assert!(said.contains(file.to_str().expect("a path")), "it names the file: {said}");
    assert_eq!(std::fs::read(&file).expect("it is there"), b"a file");
}

#[tokio::test]
async fn an_unknown_flag_is_refused() {
    let said = refusal(Server::prepare(&["--no-such-flag"])).await;
    assert!(said.contains("no-such-flag"), "{said}");
}

#[test]
fn a_command_ends_with_its_own_exit_code_and_touches_nothing_it_refuses() {
    let scratch = tempfile::TempDir::new().expect("a directory");
    let run = |line: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sternpost"));
        let output = command.args(line.split(' ')).current_dir(&scratch).output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, help, _) = run("import etcd --help");
    assert!(code == Some(0) && help.contains("--skip-hash-check"), "{help}");
    let (code, _, said) = run("import etcd f");
    assert!(code == Some(2) && said.contains("--data-dir"), "{said}");
    let (code, _, said) = run("export");
    assert!(code == Some(2) && said.contains("\"export\" is not a flag, and no command"), "{said}");
    std::fs::write(scratch.path().join("f"), vec![1; 8192 + 32]).expect("a file");
    let (code, _, said) = run("import etcd f --data-dir d");
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("f: it does not match the SHA-256 at its end"), "{said}");
    let (code, _, said) = run("import etcd f --data-dir d --skip-hash-check");
    assert!(code == Some(1) && said.contains("f: page 0: not a meta page of bbolt"), "{said}");
    assert!(!scratch.path().join("d").exists());
}
