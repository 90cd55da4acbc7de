//! Pages over HTTP/1, and the page of metrics taken apart.

use std::collections::{BTreeMap, BTreeSet};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Asks a server for a page; the status and the body. HTTP/1.0, so that the body comes in one piece.
pub async fn ask(url: &str, method: &str, path: &str) -> (u16, String) {
    let address = url.strip_prefix("http://").expect("a URL");
    let mut stream = TcpStream::connect(address).await.expect("a server");
    stream.write_all(format!("{method} {path} HTTP/1.0\r\nhost: a\r\n\r\n").as_bytes()).await.expect("a server");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    (status, body.to_owned())
}

/// A family of metrics, as a page shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Family {
    pub kind: String,
    /// The labels of its samples but `le`.
    pub labels: BTreeSet<String>,
    /// The bounds of its buckets, as they are written.
    pub bounds: BTreeSet<String>,
    pub helped: bool,
}

/// The families of a page, and its samples by name and labels.
#[derive(Debug, Default)]
pub struct Metrics {
    pub families: BTreeMap<String, Family>,
    pub samples: BTreeMap<String, f64>,
}

impl Metrics {
    /// What a server tells now.
    pub async fn of(url: &str) -> Metrics {
        let (status, page) = ask(url, "GET", "/metrics").await;
        assert_eq!(status, 200, "{page}");
        Metrics::parse(&page)
    }

    fn parse(page: &str) -> Metrics {
        let mut metrics = Metrics::default();
        let mut last = String::new();
        for line in page.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                last = help.split(' ').next().expect("a name").to_owned();
                metrics.families.entry(last.clone()).or_default().helped = true;
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a kind");
                last = name.to_owned();
                metrics.families.entry(last.clone()).or_default().kind = kind.to_owned();
            } else {
                let (sample, value) = line.rsplit_once(' ').expect("a value");
                let family = metrics.families.get_mut(&last).expect("a sample of the family before it");
                for (label, value) in labels(sample) {
                    if label == "le" {
                        family.bounds.insert(value);
                    } else {
                        family.labels.insert(label);
                    }
                }
                let known = metrics.samples.insert(sample.to_owned(), value.parse().expect("a number"));
                assert_eq!(known, None, "twice: {sample}");
            }
        }
        metrics
    }

    /// The value of a sample; 0 if it is not there.
    pub fn value(&self, sample: &str) -> f64 {
        self.samples.get(sample).copied().unwrap_or_default()
    }
}

/// The labels of a sample; values here hold no quote.
fn labels(sample: &str) -> Vec<(String, String)> {
    let Some((_, inside)) = sample.split_once('{') else { return Vec::new() };
    let pairs = inside.trim_end_matches('}').split("\",").filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        pair.split_once("=\"").map(|(name, value)| (name.to_owned(), value.trim_end_matches('"').to_owned()))
    };
    pairs.map(|text| pair(text).expect("a name and a value")).collect()
}
