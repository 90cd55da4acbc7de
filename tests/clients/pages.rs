//! The pages about health, as probes ask for them.

use etcd_client::{AlarmAction, AlarmOptions, AlarmType};

use super::connected;
use crate::support::page::ask;

/// Lines without their order, which is not promised.
fn sorted(body: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = body.lines().collect();
    lines.sort_unstable();
    lines
}

#[tokio::test]
async fn probes_are_told_that_all_is_well() {
    let (server, _client) = connected().await;
    let healthy = (200, r#"{"health":"true","reason":""}"#.to_owned());
    for path in ["/health", "/health?serializable=true", "/health?exclude=NOSPACE&exclude=x"] {
        assert_eq!(ask(&server.url(), "GET", path).await, healthy, "{path}");
    }
    let paths = ["/livez", "/readyz", "/livez/serializable_read", "/readyz/linearizable_read", "/readyz?exclude=x"];
    for path in paths {
        assert_eq!(ask(&server.url(), "GET", path).await, (200, "ok\n".to_owned()), "{path}");
    }
    let (status, body) = ask(&server.url(), "GET", "/readyz?verbose&exclude=non_learner").await;
    let lines = ["[+]data_corruption ok", "[+]linearizable_read ok", "[+]serializable_read ok", "ok"];
    assert_eq!((status, sorted(&body)), (200, lines.to_vec()));
    for path in ["/livez/linearizable_read", "/readyz/x", "/health/", "/x"] {
        assert_eq!(ask(&server.url(), "GET", path).await, (404, "404 page not found\n".to_owned()), "{path}");
    }
    for path in ["/health", "/livez", "/readyz/non_learner", "/version"] {
        assert_eq!(ask(&server.url(), "POST", path).await, (405, "Method Not Allowed\n".to_owned()), "{path}");
        assert_eq!(ask(&server.url(), "HEAD", path).await, (405, String::new()), "{path}");
    }
}

#[tokio::test]
async fn alarms_show_where_etcd_shows_them() {
    let (server, mut client) = connected().await;
    let member = client.status().await.unwrap().leader();
    for alarm in [AlarmType::Nospace, AlarmType::Corrupt] {
        let mut options = AlarmOptions::new();
        options.with_member(member);
        client.alarm(AlarmAction::Activate, alarm, Some(options)).await.unwrap();
    }
    let reason = |word: &str| (503, format!("{{\"health\":\"false\",\"reason\":\"ALARM {word}\"}}\n"));
    assert_eq!(ask(&server.url(), "GET", "/health?exclude=NOSPACE").await, reason("CORRUPT"));
    assert_eq!(ask(&server.url(), "GET", "/health?exclude=CORRUPT").await, reason("NOSPACE"));
    assert_eq!(ask(&server.url(), "GET", "/health?exclude=CORRUPT&exclude=NOSPACE").await.0, 200);
    assert_eq!(ask(&server.url(), "GET", "/livez").await, (200, "ok\n".to_owned()));
    let failed = "[-]data_corruption failed: alarm activated: CORRUPT\n\n".to_owned();
    assert_eq!(ask(&server.url(), "GET", "/readyz/data_corruption").await, (503, failed));
    let (status, body) = ask(&server.url(), "GET", "/readyz").await;
    let lines = [
        "",
        "[+]linearizable_read ok",
        "[+]non_learner ok",
        "[+]serializable_read ok",
        "[-]data_corruption failed: alarm activated: CORRUPT",
    ];
    assert_eq!((status, sorted(&body)), (503, lines.to_vec()));
    assert_eq!(ask(&server.url(), "GET", "/readyz?exclude=data_corruption").await, (200, "ok\n".to_owned()));
}
