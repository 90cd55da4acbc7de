//! `load`: puts a server that speaks the etcd v3 API under load and prints what it did and what that cost.

mod bench;
mod beside;
mod drive;
mod floor;
mod hold;
mod keys;
mod pb;
mod process;
mod report;
mod watch;
mod worker;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Anything that ends a run early.
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Parser)]
#[command(name = "load", about = "Load for servers that speak the etcd v3 API")]
struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// What every subcommand takes.
#[derive(Clone, Debug, Args)]
struct Common {
    /// Where the server listens.
    #[arg(long, global = true, default_value = "http://127.0.0.1:2379")]
    endpoint: String,
    /// The server's process, to report its CPU time, memory and input/output.
    #[arg(long, global = true)]
    server_pid: Option<u32>,
    /// A disk that only the server uses, as in /proc/diskstats, to report what it wrote, several if given again; the process's own
    /// figure counts whole folios of the page cache, which may be many times what reaches the disk.
    #[arg(long, global = true)]
    disk: Vec<String>,
    /// Requests in flight.
    #[arg(long, global = true, default_value_t = 1)]
    clients: usize,
    /// Connections that the clients share.
    #[arg(long, global = true, default_value_t = 16)]
    connections: usize,
    /// Keys there are to choose from.
    #[arg(long, global = true, default_value_t = 100_000)]
    keys: u64,
    /// Bytes of a value.
    #[arg(long, global = true, default_value_t = 256)]
    value_bytes: usize,
    /// Requests to make; for `pages` and `stream`, whole scans.
    #[arg(long, global = true, default_value_t = 10_000)]
    count: u64,
    /// The first request's number: it decides which key it is about.
    #[arg(long, global = true, default_value_t = 0)]
    first: u64,
    /// Requests a second, begun on time whatever the others take; 0 for as many as the clients make.
    #[arg(long, global = true, default_value_t = 0)]
    rate: u64,
    /// Seconds between compactions, each to the revision seen at the one before; 0 for none.
    #[arg(long, global = true, default_value_t = 0)]
    compact_every: u64,
    /// Readers beside the clients that list everything and take a second over each piece.
    #[arg(long, global = true, default_value_t = 0)]
    slow_readers: usize,
    /// One line of figures, led by this name, instead of several.
    #[arg(long, global = true)]
    line: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Writes keys.
    Put {
        /// Puts in one transaction.
        #[arg(long, default_value_t = 1)]
        batch: u64,
        /// Keys in an order without neighbours, each once in `keys` puts.
        #[arg(long)]
        random: bool,
        /// Keys drawn at random, the same in every run.
        #[arg(long, conflicts_with = "random")]
        drawn: bool,
    },
    /// Updates keys as Kubernetes does: if the key is as it was last seen then put, else get.
    Cas,
    /// Reads single keys at random.
    Get {
        /// Not necessarily the newest state.
        #[arg(long)]
        serializable: bool,
    },
    /// Reads everything in pages, at the revision of the first.
    Pages {
        /// Keys of a page; 0 for everything at once.
        #[arg(long, default_value_t = 500)]
        limit: i64,
    },
    /// Reads the first page, at the newest revision.
    Lists {
        /// Keys of a page.
        #[arg(long, default_value_t = 500)]
        limit: i64,
    },
    /// Counts everything, at the newest revision.
    Counts,
    /// Reads everything as a stream of pieces.
    Stream,
    /// Of ten requests six update, three read a key, one lists 500.
    Mixed,
    /// Writes while every watcher gets every event.
    Watch {
        /// Watches, each on a stream of its own.
        #[arg(long, default_value_t = 1)]
        watchers: usize,
    },
    /// Compacts to the newest revision.
    Compact {
        /// Returns when what that made unreadable is gone; until then it may go at any time.
        #[arg(long)]
        physical: bool,
    },
    /// Writes while a watch on everything is never read.
    SlowWatch,
    /// Opens connections and watches, does nothing with them, and reports the server's memory.
    Idle {
        /// Connections, each with one request made.
        #[arg(long, default_value_t = 0)]
        connected: usize,
        /// Watches on one stream.
        #[arg(long, default_value_t = 0)]
        watches: u64,
    },
    /// Serves what a bare tonic server answers to the same requests, without a store.
    Floor {
        /// Address and port.
        #[arg(long, default_value = "127.0.0.1:2379")]
        listen: std::net::SocketAddr,
    },
    /// Runs the same work against Sternpost and etcd in turn, and appends what was measured to a file.
    Bench(bench::Arguments),
    /// Renders what was measured as a table.
    Table(bench::table::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Runtime::new();
    let result = runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(run(arguments)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("load: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Failure> {
    use worker::{Order, Work};
    let common = &arguments.common;
    match arguments.command {
        Command::Put { batch, random, drawn } => {
            let order = match (random, drawn) {
                (true, _) => Order::Scattered,
                (_, true) => Order::Drawn,
                _ => Order::Ascending,
            };
            drive::run(common, Work::Put { batch, order }).await
        }
        Command::Cas => drive::run(common, Work::Cas).await,
        Command::Get { serializable } => drive::run(common, Work::Get { serializable }).await,
        Command::Pages { limit } => drive::run(common, Work::Pages { limit }).await,
        Command::Lists { limit } => drive::run(common, Work::Lists { limit }).await,
        Command::Counts => drive::run(common, Work::Counts).await,
        Command::Stream => drive::run(common, Work::Stream).await,
        Command::Mixed => drive::run(common, Work::Mixed).await,
        Command::Watch { watchers } => watch::fan_out(common, watchers).await,
        Command::Compact { physical } => beside::compact_now(common, physical).await,
        Command::SlowWatch => hold::slow_watch(common).await,
        Command::Idle { connected, watches } => hold::idle(common, connected, watches).await,
        Command::Floor { listen } => floor::serve(listen).await,
        Command::Bench(arguments) => bench::run(&arguments).await,
        Command::Table(arguments) => bench::table::run(&arguments),
    }
}
