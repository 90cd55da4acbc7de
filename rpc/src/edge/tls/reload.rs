//! The certificates in use, loaded again when a handshake comes and a file has changed.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use tracing::{info, warn};

use super::files::{Stamp, stamp};
use super::self_signed;
use super::settings::TlsSettings;

/// What handshakes need, kept as new as the files.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(super) settings: TlsSettings,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The files as they were before they were last read, whatever came of it.
    stamps: Vec<Stamp>,
    config: Arc<ServerConfig>,
}

impl Tls {
    /// Loads everything, and makes the certificate first if that was asked for. Blocks. The error is one line.
    pub(crate) fn load(settings: TlsSettings) -> Result<Tls, String> {
        if let Some(wanted) = &settings.self_signed {
            self_signed::prepare(&settings.cert_file, &settings.key_file, wanted)?;
        }
        let stamps = stamps(&settings);
        let config = Arc::new(settings.build()?);
        Ok(Tls { settings, state: Mutex::new(State { stamps, config }) })
    }

    /// What the next handshake goes by. Blocks while it looks at the files, and reads them if one has changed. If that
    /// fails, what was loaded before stays in use, and one line is logged until a file changes again.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.settings);
        if stamps != state.stamps {
            state.stamps = stamps;
            match self.settings.build() {
                Ok(config) => {
                    state.config = Arc::new(config);
                    info!("certificates loaded again");
                }
                Err(why) => warn!("certificates changed and cannot be loaded, the old ones stay in use: {why}"),
            }
        }
        Arc::clone(&state.config)
    }
}

fn stamps(settings: &TlsSettings) -> Vec<Stamp> {
    settings.files().into_iter().map(stamp).collect()
}
